//! Values that callers compute from a trace and that live as long as it.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Trace;

/// At most one value of each type.
#[derive(Default)]
pub(crate) struct DerivedValues {
    values: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl DerivedValues {
    fn get<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let values = self.values.lock();
        let mut values = values.unwrap_or_else(PoisonError::into_inner);
        let mut known = values.iter();
        if let Some(found) = known.find_map(|value| Arc::clone(value).downcast::<T>().ok()) {
            return found;
        }
        let new = Arc::new(T::default());
        values.push(Arc::<T>::clone(&new));
        new
    }
}

impl Trace {
    /// Returns the value of this type that belongs to the trace, created empty on first use. Analyses keep there
    /// what they compute from the trace for its next readers; the value is dropped with the trace.
    pub fn derived<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        self.derived.get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::TraceBuilder;

    #[test]
    fn a_trace_has_one_value_of_each_type_until_it_is_dropped() {
        let trace = TraceBuilder::new().finish();
        trace.derived::<AtomicU32>().store(7, Ordering::Relaxed);
        let value = trace.derived::<AtomicU32>();
        assert_eq!(value.load(Ordering::Relaxed), 7);
        assert!(trace.derived::<Mutex<u32>>().lock().is_ok());
        let weak = Arc::downgrade(&value);
        drop(value);
        assert!(weak.upgrade().is_some());
        drop(trace);
        assert!(weak.upgrade().is_none());
    }
}
