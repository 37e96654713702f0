//! Tests of the store through its public interface.

mod smoke;
