//! What other profilers of this process recorded meanwhile, for the same file.
//!
//! Frameworks have profilers of their own (`ADR 0005`). Whoever runs them beside a recording of ours
//! hands their results to [`stop_trace_with`](crate::stop_trace_with) or
//! [`Capture::finish_with`](crate::Capture::finish_with); all times then count from the beginning of
//! our recording. See `stepscope_formats::xspace::MergedPlanes` for what becomes of planes that share a name.

use std::borrow::Cow;
use std::io::{self, Write};

use stepscope_formats::xspace::{
    HOST_PLANE, MergedPlane, MergedPlanes, PlaneWriter, XSpaceWriter, write_planes,
};

/// The plane that a Chrome JSON's first process becomes: `/host:CPU` is of those who see whole threads.
const OTHER_HOST_PLANE: &str = "/host:";

/// What kineto says where there is no GPU. Nothing is missing then.
const NO_GPU: &str = "gpuGetDeviceCount failed";

/// What another profiler recorded.
#[derive(Clone, Debug)]
pub struct ExternalProfile {
    /// Name of the profiler, for reports and warnings: `jax`, `torch`, ...
    pub name: String,
    /// What it gave.
    pub content: ExternalContent,
}

/// What another profiler gave.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExternalContent {
    /// One or more `XSpace` messages.
    XSpace(Vec<u8>),
    /// Chrome JSON whose times are Unix times, as `PyTorch` writes it.
    #[cfg(feature = "chrome")]
    ChromeJson(Vec<u8>),
}

/// What goes into the file besides the recording.
#[derive(Clone, Debug, Default)]
pub struct ExternalProfiles {
    /// What other profilers recorded, in the order in which they were started.
    pub parts: Vec<ExternalProfile>,
    /// What the user should know, one sentence each.
    pub warnings: Vec<String>,
}

/// What became of an [`ExternalProfile`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedProfile {
    /// Name of the profiler.
    pub name: String,
    /// Its events in the file.
    pub events: u64,
}

/// What to do about something that a framework's profiler says, where that is known.
pub fn advice(text: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 6] = [
        (
            "Another profiling session active",
            "another profiler of this process records already: stop it, or end the remote capture that runs",
        ),
        (
            "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            "another profiler holds the GPU's tracing interface: end Nsight, or the other framework's profiler",
        ),
        (
            "INSUFFICIENT_PRIVILEGES",
            "the driver lets only administrators do this: run as root, or load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (
            "VIRTUALIZED_DEVICE_NOT_SUPPORTED",
            "this virtual GPU cannot be traced: enable it in the hypervisor",
        ),
        (
            "libcupti",
            "CUPTI is missing: pip install nvidia-cuda-cupti-cu12, or put its folder into LD_LIBRARY_PATH",
        ),
        (
            "CUPTI could not be loaded",
            "CUPTI is missing: pip install nvidia-cuda-cupti-cu12, or put its folder into LD_LIBRARY_PATH",
        ),
    ];
    KNOWN
        .iter()
        .find(|(part, _)| text.contains(part))
        .map(|(_, advice)| *advice)
}

/// The additions of one file while it is written.
#[derive(Debug, Default)]
pub(crate) struct Grafts<'a> {
    planes: Vec<MergedPlane<'a>>,
    /// The latest end, Unix nanoseconds.
    pub(crate) stop_unix_ns: i64,
    pub(crate) warnings: Vec<String>,
    pub(crate) added: Vec<MergedProfile>,
}

/// Each addition as an `XSpace`; what cannot be read is a warning.
pub(crate) fn spaces<'a>(
    additions: &'a ExternalProfiles,
    #[cfg_attr(
        not(feature = "chrome"),
        allow(
            unused_variables,
            clippy::ptr_arg,
            reason = "bytes of XSpaces are looked at later"
        )
    )]
    warnings: &mut Vec<String>,
) -> Vec<(&'a str, Cow<'a, [u8]>)> {
    let mut spaces = Vec::new();
    for part in &additions.parts {
        let space: Cow<'_, [u8]> = match &part.content {
            ExternalContent::XSpace(bytes) => Cow::Borrowed(bytes),
            #[cfg(feature = "chrome")]
            ExternalContent::ChromeJson(bytes) => match from_chrome(bytes) {
                Ok(space) => Cow::Owned(space),
                Err(error) => {
                    warnings.push(format!(
                        "{}: what its profiler gave cannot be read: {error}",
                        part.name
                    ));
                    continue;
                }
            },
        };
        spaces.push((part.name.as_str(), space));
    }
    spaces
}

#[cfg(feature = "chrome")]
fn from_chrome(bytes: &[u8]) -> io::Result<Vec<u8>> {
    use std::sync::Arc;

    use stepscope_formats::{chrome_json, xspace};
    use stepscope_model::{Limits, ReadContext, SharedBytes};

    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut context = ReadContext::new(Limits::default());
    context.threads = 1;
    let mut sink = xspace::XSpaceSink::new();
    chrome_json::read(&bytes, &context, &mut sink).map_err(io::Error::other)?;
    sink.finish(Vec::new())
}

/// What kineto's file says of itself, and this one is ours: its clock, its name (a temporary file), and the
/// errors that are warnings here.
const OF_THE_FILE: &[&str] = &[
    "writer",
    "displayTimeUnit",
    "schemaVersion",
    "baseTimeNanoseconds",
    "traceName",
    "ERROR",
];

/// Rows in which kineto tells of itself: the interval that was recorded, and its ends.
fn is_bookkeeping(plane: &MergedPlane<'_>) -> bool {
    plane.record().is_some_and(|record| {
        record.ungrouped || matches!(record.name.as_deref(), Some("Spans" | "Traces"))
    })
}

impl<'a> Grafts<'a> {
    /// Puts the additions' planes onto the clock of a file that begins at `zero_unix_ns`.
    pub(crate) fn new(spaces: &'a [(&'a str, Cow<'a, [u8]>)], zero_unix_ns: i64) -> Self {
        let mut all_merged = Self::default();
        for (name, space) in spaces {
            let mut merged = MergedPlanes::new(space, zero_unix_ns);
            all_merged.added.push(MergedProfile {
                name: (*name).to_owned(),
                events: merged.events,
            });
            merged.messages.retain(|text| !text.contains(NO_GPU));
            let told = merged.messages.drain(..).map(|text| match advice(&text) {
                Some(advice) => format!("{name}: {text} ({advice})"),
                None => format!("{name}: {text}"),
            });
            all_merged.warnings.extend(told);
            if let Some((at, what)) = merged.fault {
                all_merged.warnings.push(format!(
                    "{name}: what its profiler gave is damaged at byte {at} ({what}); what comes before is here"
                ));
            }
            all_merged.stop_unix_ns = all_merged
                .stop_unix_ns
                .max(merged.stop_unix_ns.unwrap_or(0));
            if matches!(space, Cow::Owned(_)) {
                merged.planes.retain(|plane| !is_bookkeeping(plane));
                for plane in &mut merged.planes {
                    plane.without = OF_THE_FILE;
                    if plane.name == HOST_PLANE {
                        plane.name = format!("{OTHER_HOST_PLANE}{name}");
                    }
                }
            }
            all_merged.planes.append(&mut merged.planes);
        }
        all_merged
    }

    /// Takes over those of the host's threads.
    pub(crate) fn fill_host(&mut self, plane: &mut PlaneWriter) {
        self.planes.retain(|merged| {
            let joins = merged.joins(HOST_PLANE);
            if joins {
                plane.adopt(merged);
            }
            !joins
        });
    }

    /// Writes the others.
    pub(crate) fn write<W: Write>(&self, space: &mut XSpaceWriter<W>) -> io::Result<()> {
        write_planes(&self.planes, space)
    }
}
