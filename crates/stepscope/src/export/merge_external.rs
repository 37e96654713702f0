//! Profiles that other profilers of this process recorded during the recording, for the same file.
//!
//! Frameworks have their own profilers (`ADR 0005`). A program that runs them during a recording
//! passes their results to [`stop_trace_with`](crate::stop_trace_with) or
//! [`Capture::finish_with`](crate::Capture::finish_with); all times are then relative to the start
//! of the recording. See `stepscope_formats::xspace::MergedPlanes` for planes with the same name.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use stepscope_formats::xspace::{
    HOST_PLANE, MergedPlane, MergedPlanes, PlaneWriter, XSpaceWriter, write_planes,
};
use stepscope_model::SharedBytes;

/// Prefix of the plane for a Chrome JSON's first process: `/host:CPU` is reserved for profilers
/// that record whole threads.
const OTHER_HOST_PLANE: &str = "/host:";

/// Kineto's message on a machine without a GPU, where nothing is missing.
const NO_GPU: &str = "gpuGetDeviceCount failed";

/// A profile that another profiler recorded.
#[derive(Clone, Debug)]
pub struct ExternalProfile {
    /// Name of the profiler, for reports and warnings: `jax`, `torch`, ...
    pub name: String,
    /// The profiler's output.
    pub content: ExternalContent,
}

/// The output of another profiler.
#[derive(Clone)]
#[non_exhaustive]
pub enum ExternalContent {
    /// One or more `XSpace` messages.
    XSpace(SharedBytes),
    /// Chrome JSON with Unix times, as `PyTorch` writes it.
    #[cfg(feature = "chrome")]
    ChromeJson(SharedBytes),
}

impl fmt::Debug for ExternalContent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (format, bytes) = match self {
            Self::XSpace(bytes) => ("XSpace", bytes),
            #[cfg(feature = "chrome")]
            Self::ChromeJson(bytes) => ("ChromeJson", bytes),
        };
        write!(out, "{format}({} bytes)", (**bytes).as_ref().len())
    }
}

/// Profiles that are added to the recording's file.
#[derive(Clone, Debug, Default)]
pub struct ExternalProfiles {
    /// Profiles of other profilers, in the order in which they started.
    pub profiles: Vec<ExternalProfile>,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Summary of a merged [`ExternalProfile`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedProfile {
    /// Name of the profiler.
    pub name: String,
    /// Number of its events in the file.
    pub events: u64,
}

/// Returns advice for a message of a framework's profiler, if it is a known one.
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

/// The external planes of one file while it is written.
#[derive(Debug, Default)]
pub(crate) struct ExternalPlanes<'a> {
    planes: Vec<MergedPlane<'a>>,
    /// The latest end, Unix time in nanoseconds.
    pub(crate) stop_unix_ns: i64,
    pub(crate) warnings: Vec<String>,
    pub(crate) added: Vec<MergedProfile>,
}

/// Converts each profile to an `XSpace`; an unreadable one becomes a warning.
pub(crate) fn spaces<'a>(
    external: &'a ExternalProfiles,
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
    for profile in &external.profiles {
        let space: Cow<'_, [u8]> = match &profile.content {
            ExternalContent::XSpace(bytes) => Cow::Borrowed((**bytes).as_ref()),
            #[cfg(feature = "chrome")]
            ExternalContent::ChromeJson(bytes) => match from_chrome(bytes) {
                Ok(space) => Cow::Owned(space),
                Err(error) => {
                    warnings.push(format!(
                        "{}: cannot read its profile: {error}",
                        profile.name
                    ));
                    continue;
                }
            },
        };
        spaces.push((profile.name.as_str(), space));
    }
    spaces
}

#[cfg(feature = "chrome")]
fn from_chrome(bytes: &SharedBytes) -> io::Result<Vec<u8>> {
    use stepscope_formats::{chrome_json, xspace};
    use stepscope_model::{Limits, ReadContext};

    let mut context = ReadContext::new(Limits::default());
    context.threads = 1;
    let mut sink = xspace::XSpaceSink::new();
    chrome_json::read(bytes, &context, &mut sink).map_err(io::Error::other)?;
    sink.finish(Vec::new())
}

/// Plane stats of kineto's file that do not apply to the merged file: its clock, its name (a
/// temporary file), and the errors, which become warnings here.
const FILE_STATS: &[&str] = &[
    "writer",
    "displayTimeUnit",
    "schemaVersion",
    "baseTimeNanoseconds",
    "traceName",
    "ERROR",
];

/// Whether a plane is kineto's bookkeeping: the recorded interval, and its ends.
fn is_bookkeeping(plane: &MergedPlane<'_>) -> bool {
    plane.record().is_some_and(|record| {
        record.ungrouped || matches!(record.name.as_deref(), Some("Spans" | "Traces"))
    })
}

impl<'a> ExternalPlanes<'a> {
    /// Converts the planes of all profiles to the clock of a file that starts at `zero_unix_ns`.
    pub(crate) fn new(spaces: &'a [(&'a str, Cow<'a, [u8]>)], zero_unix_ns: i64) -> Self {
        let mut all_merged = Self::default();
        for (name, space) in spaces {
            let mut merged = MergedPlanes::new(space, zero_unix_ns);
            all_merged.added.push(MergedProfile {
                name: (*name).to_owned(),
                events: merged.events,
            });
            merged.messages.retain(|text| !text.contains(NO_GPU));
            let messages = merged.messages.drain(..).map(|text| match advice(&text) {
                Some(advice) => format!("{name}: {text} ({advice})"),
                None => format!("{name}: {text}"),
            });
            all_merged.warnings.extend(messages);
            if let Some((at, reason)) = merged.fault {
                all_merged.warnings.push(format!(
                    "{name}: its profile is damaged at byte {at} ({reason}); events before that are included"
                ));
            }
            all_merged.stop_unix_ns = all_merged
                .stop_unix_ns
                .max(merged.stop_unix_ns.unwrap_or(0));
            if matches!(space, Cow::Owned(_)) {
                merged.planes.retain(|plane| !is_bookkeeping(plane));
                for plane in &mut merged.planes {
                    plane.without = FILE_STATS;
                    if plane.name == HOST_PLANE {
                        plane.name = format!("{OTHER_HOST_PLANE}{name}");
                    }
                }
            }
            all_merged.planes.append(&mut merged.planes);
        }
        all_merged
    }

    /// Moves the planes of the host's threads into `plane`.
    pub(crate) fn fill_host(&mut self, plane: &mut PlaneWriter) {
        self.planes.retain(|merged| {
            let joins = merged.joins(HOST_PLANE);
            if joins {
                plane.adopt(merged);
            }
            !joins
        });
    }

    /// Writes the other planes.
    pub(crate) fn write<W: Write>(&self, space: &mut XSpaceWriter<W>) -> io::Result<()> {
        write_planes(&self.planes, space)
    }
}
