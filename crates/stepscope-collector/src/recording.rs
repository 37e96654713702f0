//! One file of events, from its first plane to its last.

use std::time::{Duration, Instant};

use stepscope::CollectorFile;
use stepscope_formats::xspace::{HOST_PLANE, PlaneWriter, WrittenStatValue, XSpaceWriter};
use stepscope_model::clock::unix_now_ns;
use stepscope_model::vocabulary::producer::Producer;

use crate::planes::Planes;
use crate::settings::Settings;

/// Events that are written at once, and the longest time until they are.
const BATCH_EVENTS: u64 = 65_536;
const BATCH_TIME: Duration = Duration::from_secs(2);

pub(crate) struct Recording {
    pub(crate) file: CollectorFile,
    pub(crate) planes: Planes,
    /// Unix time in nanoseconds.
    start: u64,
    pub(crate) events: u64,
    pub(crate) dropped: u64,
    last_write: Instant,
    /// Why the file is not written any more.
    fault: Option<String>,
}

/// Returns the Unix time in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    u64::try_from(unix_now_ns()).unwrap_or(0)
}

impl Recording {
    /// Creates the file; the planes keep events that overlap `window`, Unix time in nanoseconds.
    pub(crate) fn create(
        settings: &Settings,
        producer: Producer,
        window: (u64, u64),
    ) -> Result<Self, String> {
        let start = now_ns();
        let mut file = stepscope::collector_file(
            &settings.log_dir,
            settings.session.as_deref(),
            settings.max_bytes,
        )
        .map_err(|error| error.to_string())?;
        file.append(&head(start, settings, producer))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            file,
            planes: Planes::new(start, window),
            start,
            events: 0,
            dropped: 0,
            last_write: Instant::now(),
            fault: None,
        })
    }

    /// Returns whether events still reach the file.
    pub(crate) const fn is_written(&self) -> bool {
        self.fault.is_none()
    }

    /// Writes the planes if there are many events or the last time was long ago.
    pub(crate) fn write_if_due(&mut self) {
        if self.planes.events() >= BATCH_EVENTS || self.last_write.elapsed() >= BATCH_TIME {
            self.write();
        }
    }

    fn write(&mut self) {
        self.last_write = Instant::now();
        if self.planes.events() == 0 || self.fault.is_some() {
            return;
        }
        let planes = self.planes.take();
        match self.file.append(&planes) {
            Ok(true) => {}
            Ok(false) => {
                let reached = self.file.limit_reached().unwrap_or_default();
                self.fault = Some(format!("{reached}: what came later is not recorded"));
            }
            Err(error) => {
                self.fault = Some(format!("{error}: what came later is not recorded"));
            }
        }
    }

    /// Completes the file; returns also the warnings in it. `library` names the vendor's library.
    pub(crate) fn finish(mut self, library: &str) -> (CollectorFile, Vec<String>) {
        self.write();
        let mut warnings: Vec<String> = self.fault.take().into_iter().collect();
        if self.dropped > 0 {
            warnings.push(format!(
                "{library} dropped {} records: it had no memory for them",
                self.dropped
            ));
        }
        let mut bytes = Vec::new();
        let mut space = XSpaceWriter::new(&mut bytes);
        // A vector takes everything.
        let _ = space.task_environment(self.start, now_ns());
        for warning in &warnings {
            let _ = space.warning(warning);
        }
        let _ = self.file.append_last(&bytes);
        (self.file, warnings)
    }
}

/// Encodes the beginning of a file.
fn head(start: u64, settings: &Settings, producer: Producer) -> Vec<u8> {
    let mut plane = PlaneWriter::new(HOST_PLANE).with_id(1);
    let id = plane.stat("writer");
    let writer = concat!("stepscope ", env!("CARGO_PKG_VERSION"));
    plane.add_stat(id, WrittenStatValue::Str(writer));
    let numbers = [
        ("process_id", Some(u64::from(std::process::id()))),
        ("rank", settings.rank.rank),
        ("world_size", settings.rank.world_size),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            let id = plane.stat(name);
            plane.add_stat(id, WrittenStatValue::Uint(value));
        }
    }
    let id = plane.bool_argument(&format!("kind.{}", producer.name()));
    plane.add_stat(id, WrittenStatValue::Int(1));
    plane.continues();
    let mut bytes = Vec::new();
    let mut space = XSpaceWriter::new(&mut bytes);
    // A vector takes everything.
    let _ = space.plane(&plane);
    let _ = space.task_environment(start, start);
    bytes
}
