//! Argument sources that check whether their file has changed since it was read.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use stepscope_formats::{Format, gzip};
use stepscope_model::{
    ArgError, ArgKeys, ArgSource, ArgValue, ExecutedOperator, Limits, MemorySnapshot, Program,
    ProgramInstruction, ReadContext, SharedBytes,
};

use crate::files::inflated::inflated;
use crate::files::{FileLocation, Stamp, TraceFile};

/// Interval between two checks of a file, in milliseconds.
const LOOK_AGAIN_MS: i64 = 100;

/// A reader's argument source over a mapped file.
pub(crate) struct CheckedSource {
    inner: Arc<dyn ArgSource>,
    file: Arc<TraceFile>,
    begun: Instant,
    /// Time of the last successful check, in milliseconds since `begun`; -1 before the first.
    looked_ms: AtomicI64,
}

impl CheckedSource {
    pub(crate) fn new(inner: Arc<dyn ArgSource>, file: Arc<TraceFile>) -> Self {
        Self {
            inner,
            file,
            begun: Instant::now(),
            looked_ms: AtomicI64::new(-1),
        }
    }

    fn check(&self) -> Result<(), ArgError> {
        if self.file.damaged() {
            return Err(ArgError::SourceChanged);
        }
        let now = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let last = self.looked_ms.load(Ordering::Relaxed);
        if last >= 0 && now - last < LOOK_AGAIN_MS {
            return Ok(());
        }
        self.file.check()?;
        self.looked_ms.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the outcome, or an error if the file changed meanwhile.
    fn explained(&self, outcome: Result<(), ArgError>) -> Result<(), ArgError> {
        // Pages that disappeared were read as zeros.
        if self.file.damaged() {
            return Err(ArgError::SourceChanged);
        }
        if outcome == Err(ArgError::Damaged) {
            self.file.check()?;
        }
        outcome
    }
}

impl ArgSource for CheckedSource {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        self.check()?;
        let outcome = self.inner.visit(token, visit);
        self.explained(outcome)
    }

    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        self.check()?;
        let outcome = self.inner.visit_some(token, keys, visit);
        self.explained(outcome)
    }

    fn instructions(&self, visit: &mut dyn FnMut(&ProgramInstruction<'_>)) -> Result<(), ArgError> {
        self.check()?;
        let outcome = self.inner.instructions(visit);
        self.explained(outcome)
    }

    fn programs(&self, visit: &mut dyn FnMut(&Program<'_>)) -> Result<(), ArgError> {
        self.check()?;
        let outcome = self.inner.programs(visit);
        self.explained(outcome)
    }

    fn operators(&self, visit: &mut dyn FnMut(&ExecutedOperator<'_>)) -> Result<(), ArgError> {
        self.check()?;
        let outcome = self.inner.operators(visit);
        self.explained(outcome)
    }

    fn memory_snapshot(&self) -> Result<Option<Arc<MemorySnapshot>>, ArgError> {
        self.check()?;
        self.inner.memory_snapshot()
    }
}

/// Metadata to recreate the argument source of a file.
#[derive(Clone, Debug)]
pub(crate) struct SourceSpec {
    pub(crate) path: PathBuf,
    pub(crate) place: Option<FileLocation>,
    pub(crate) stamp: Stamp,
    pub(crate) format: Format,
    pub(crate) limits: Limits,
}

/// The argument source of a run from the import cache. It opens (and decompresses) the file when
/// the first argument is requested.
pub(crate) struct LazySource {
    spec: SourceSpec,
    made: OnceLock<Result<Arc<dyn ArgSource>, ArgError>>,
}

impl LazySource {
    pub(crate) fn new(spec: SourceSpec) -> Self {
        Self {
            spec,
            made: OnceLock::new(),
        }
    }

    fn make(&self) -> Result<Arc<dyn ArgSource>, ArgError> {
        let changed = |_| ArgError::SourceChanged;
        let file = Arc::new(
            TraceFile::open_place(&self.spec.path, self.spec.place.as_ref()).map_err(changed)?,
        );
        if file.stamp() != self.spec.stamp {
            return Err(ArgError::SourceChanged);
        }
        let context = ReadContext::new(self.spec.limits);
        let unreadable = |_| ArgError::Damaged;
        if gzip::is_gzip((*file).as_ref()) {
            let bytes = inflated((*file).as_ref(), &context).bytes;
            return stepscope_formats::arg_source(self.spec.format, &bytes, &context)
                .map_err(unreadable);
        }
        let bytes: SharedBytes = Arc::<TraceFile>::clone(&file);
        let source = stepscope_formats::arg_source(self.spec.format, &bytes, &context)
            .map_err(unreadable)?;
        Ok(Arc::new(CheckedSource::new(source, file)))
    }
}

impl ArgSource for LazySource {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        match self.made.get_or_init(|| self.make()) {
            Ok(source) => source.visit(token, visit),
            Err(error) => Err(*error),
        }
    }

    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        match self.made.get_or_init(|| self.make()) {
            Ok(source) => source.visit_some(token, keys, visit),
            Err(error) => Err(*error),
        }
    }

    fn instructions(&self, visit: &mut dyn FnMut(&ProgramInstruction<'_>)) -> Result<(), ArgError> {
        match self.made.get_or_init(|| self.make()) {
            Ok(source) => source.instructions(visit),
            Err(error) => Err(*error),
        }
    }

    fn programs(&self, visit: &mut dyn FnMut(&Program<'_>)) -> Result<(), ArgError> {
        match self.made.get_or_init(|| self.make()) {
            Ok(source) => source.programs(visit),
            Err(error) => Err(*error),
        }
    }

    fn operators(&self, visit: &mut dyn FnMut(&ExecutedOperator<'_>)) -> Result<(), ArgError> {
        match self.made.get_or_init(|| self.make()) {
            Ok(source) => source.operators(visit),
            Err(error) => Err(*error),
        }
    }

    fn memory_snapshot(&self) -> Result<Option<Arc<MemorySnapshot>>, ArgError> {
        match self.made.get_or_init(|| self.make()) {
            Ok(source) => source.memory_snapshot(),
            Err(error) => Err(*error),
        }
    }
}

/// Placeholder source of an unreadable file, which has no events and therefore no requests.
pub(crate) struct NoSource;

impl ArgSource for NoSource {
    fn visit(&self, _: u64, _: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        Err(ArgError::BadToken)
    }
}
