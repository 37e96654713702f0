//! The peaks that `stepscope peaks` measured on processors, stored in the user's data directory.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stepscope_analysis::peaks::{PROCESSOR, PROCESSORS, PeakRates, Precision};
use stepscope_store::Trace;

use crate::{atomic_file, cache};

/// What was measured on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredPeaks {
    /// Number of processors that the program could use; all of them worked.
    pub processors: u64,
    /// Floating-point operations per second of matrix products in `f64`; `None` in files of versions that did not
    /// measure it.
    #[serde(default)]
    pub f64_flops_per_second: Option<u64>,
    /// The same in `f32`.
    pub f32_flops_per_second: u64,
    /// The same in `bf16`; `None` where it was not measured.
    pub bf16_flops_per_second: Option<u64>,
    /// Bytes read and written per second by a copy in main memory.
    pub copy_bytes_per_second: u64,
}

impl MeasuredPeaks {
    /// Returns the rates.
    pub fn rates(&self) -> PeakRates {
        let mut flops = BTreeMap::from([(Precision::F32, self.f32_flops_per_second)]);
        flops.extend(self.f64_flops_per_second.map(|rate| (Precision::F64, rate)));
        flops.extend(
            self.bf16_flops_per_second
                .map(|rate| (Precision::F16, rate)),
        );
        PeakRates {
            flops,
            other_flops: None,
            bytes: Some(self.copy_bytes_per_second),
        }
    }
}

/// Nothing was measured on this machine's processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotMeasured {
    processor: String,
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot use measured peaks: none are stored for the processor '{}'\nhelp: run 'stepscope peaks'",
            self.processor
        )
    }
}

impl std::error::Error for NotMeasured {}

/// Name of a processor whose system does not name it.
const UNNAMED: &str = "unnamed";

/// Returns the model under which the measurements of this machine are stored.
pub fn this_processor() -> String {
    stepscope::processor_model().unwrap_or_else(|| UNNAMED.to_owned())
}

/// The file of measurements, by model of the processor.
#[derive(Clone, Debug)]
pub struct PeakStore {
    path: Option<PathBuf>,
}

/// Maximum size of the file: some thousand processors.
const MAX_BYTES: u64 = 1 << 20;

impl PeakStore {
    /// Returns the user's file: `peaks.json` in `$XDG_DATA_HOME/stepscope`, else in `~/.local/share/stepscope`.
    pub fn user() -> Self {
        Self {
            path: cache::default_data_dir().map(|folder| folder.join("peaks.json")),
        }
    }

    /// Returns a store in this file.
    pub const fn at(path: PathBuf) -> Self {
        Self { path: Some(path) }
    }

    /// Returns its file; `None` if the user has no home directory.
    pub const fn path(&self) -> Option<&PathBuf> {
        self.path.as_ref()
    }

    /// Reads the measurements. A missing or damaged file has none.
    #[allow(
        clippy::disallowed_methods,
        reason = "the file is small, and its size was checked"
    )]
    fn read(&self) -> BTreeMap<String, MeasuredPeaks> {
        let content = self.path.as_ref().and_then(|path| {
            let is_small = std::fs::metadata(path).ok()?.len() <= MAX_BYTES;
            is_small.then(|| std::fs::read(path).ok())?
        });
        let parsed = content.and_then(|content| serde_json::from_slice(&content).ok());
        parsed.unwrap_or_default()
    }

    /// Returns what was measured on a processor.
    pub fn find(&self, processor: &str) -> Option<MeasuredPeaks> {
        self.read().remove(processor)
    }

    /// Stores a measurement in place of an earlier one.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn store(&self, processor: &str, peaks: MeasuredPeaks) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the user has no home directory",
            ));
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut all = self.read();
        all.insert(processor.to_owned(), peaks);
        let content = serde_json::to_vec_pretty(&all)?;
        atomic_file::replace(path, |file| file.write_all(&content))
    }

    /// Returns the rates for the operations that run on the processors of the hosts of a trace: those of the model
    /// that the trace names, if the same number of processors was measured. `is_asked`: those of this machine.
    ///
    /// # Errors
    ///
    /// [`NotMeasured`] if they are asked for and nothing was measured here.
    pub fn rates_for(&self, trace: &Trace, is_asked: bool) -> Result<PeakRates, NotMeasured> {
        if is_asked {
            let processor = this_processor();
            let found = self.find(&processor).ok_or(NotMeasured { processor })?;
            return Ok(found.rates());
        }
        let mut hosts = trace.files().iter().map(|file| {
            let model = file.fact(PROCESSOR)?.to_string();
            Some((model, file.fact(PROCESSORS)?.to_string()))
        });
        let Some(Some(first)) = hosts.next() else {
            return Ok(PeakRates::default());
        };
        let is_common = hosts.all(|host| host.as_ref() == Some(&first));
        let (model, processors) = first;
        let measured = self
            .find(&model)
            .filter(|found| is_common && found.processors.to_string() == processors);
        Ok(measured.map(|found| found.rates()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use stepscope_store::TraceBuilder;

    use super::*;

    const PEAKS: MeasuredPeaks = MeasuredPeaks {
        processors: 2,
        f64_flops_per_second: Some(100_000_000_000),
        f32_flops_per_second: 200_000_000_000,
        bf16_flops_per_second: None,
        copy_bytes_per_second: 20_000_000_000,
    };

    #[test]
    fn measurements_are_stored_by_model() {
        let folder = tempfile::tempdir().unwrap();
        let store = PeakStore::at(folder.path().join("new").join("peaks.json"));
        assert_eq!(store.find("A"), None);
        store.store("A", PEAKS).unwrap();
        let faster = MeasuredPeaks {
            bf16_flops_per_second: Some(800_000_000_000),
            ..PEAKS
        };
        store.store("B", faster).unwrap();
        assert_eq!(
            (store.find("A"), store.find("B")),
            (Some(PEAKS), Some(faster))
        );
        assert_eq!(
            faster.rates().flops_of(Precision::F16),
            Some(800_000_000_000)
        );
        assert_eq!(PEAKS.rates().flops_of(Precision::F16), None);
        assert_eq!(
            PEAKS.rates().flops_of(Precision::F64),
            Some(100_000_000_000)
        );
        // Written before products in f64 were measured.
        let old = r#"{"C":{"processors":1,"f32_flops_per_second":2,"bf16_flops_per_second":null,"copy_bytes_per_second":3}}"#;
        std::fs::write(store.path().unwrap(), old).unwrap();
        assert_eq!(
            store.find("C").map(|found| found.f64_flops_per_second),
            Some(None)
        );
        std::fs::write(store.path().unwrap(), "{damaged").unwrap();
        assert_eq!(store.find("A"), None);
        store.store("A", PEAKS).unwrap();
        assert_eq!(store.find("A"), Some(PEAKS));
    }

    #[test]
    fn runs_that_name_no_processor_need_an_explicit_choice() {
        let folder = tempfile::tempdir().unwrap();
        let store = PeakStore::at(folder.path().join("peaks.json"));
        let trace = TraceBuilder::new().finish();
        let error = store.rates_for(&trace, true).unwrap_err().to_string();
        assert!(error.contains("\nhelp: run 'stepscope peaks'"), "{error}");
        store.store(&this_processor(), PEAKS).unwrap();
        assert!(store.rates_for(&trace, false).unwrap().is_empty());
        assert_eq!(store.rates_for(&trace, true).unwrap(), PEAKS.rates());
    }
}
