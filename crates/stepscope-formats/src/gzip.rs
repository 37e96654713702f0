//! Inflating gzip, with bounds.
