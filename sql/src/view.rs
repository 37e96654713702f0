//! Columns of the store as Arrow arrays, without a copy.
//!
//! The unsafe code of this crate: a buffer that points into a trace keeps the trace alive.
#![allow(
    unsafe_code,
    reason = "columns of traces are viewed in place, see the module's text"
)]

use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, UInt32Array};
use datafusion::arrow::buffer::{Buffer, ScalarBuffer};
use stepscope_model::{Dur, NameId, Time};
use stepscope_store::Trace;

/// Keeps a trace alive for the buffers that view its columns.
struct Owner(#[allow(dead_code, reason = "only its lifetime counts")] Arc<Trace>);

// The trace is immutable: a panic elsewhere cannot leave it half changed.
impl RefUnwindSafe for Owner {}

/// Views times of a trace.
pub(crate) fn times(trace: &Arc<Trace>, values: &[Time]) -> Int64Array {
    // `Time` is `repr(transparent)` over `i64`.
    Int64Array::new(ScalarBuffer::from(buffer(trace, values)), None)
}

/// Views durations of a trace.
pub(crate) fn durations(trace: &Arc<Trace>, values: &[Dur]) -> Int64Array {
    // `Dur` is `repr(transparent)` over `i64`.
    Int64Array::new(ScalarBuffer::from(buffer(trace, values)), None)
}

/// Views ids of names of a trace.
pub(crate) fn name_ids(trace: &Arc<Trace>, values: &[NameId]) -> UInt32Array {
    // `NameId` is `repr(transparent)` over `u32`.
    UInt32Array::new(ScalarBuffer::from(buffer(trace, values)), None)
}

/// Views values that are part of the trace. Private: the callers are the types without padding and without invalid
/// bit patterns.
fn buffer<T>(trace: &Arc<Trace>, values: &[T]) -> Buffer {
    let Some(first) = NonNull::new(values.as_ptr().cast_mut().cast::<u8>()) else {
        return Buffer::default();
    };
    let owner = Arc::new(Owner(Arc::clone(trace)));
    // SAFETY: `values` is borrowed from a column of `trace`: columns are immutable and live as long as the trace,
    // which `owner` keeps alive until the buffer is dropped. The length is that of the values, all initialised.
    unsafe { Buffer::from_custom_allocation(first, size_of_val(values), owner) }
}
