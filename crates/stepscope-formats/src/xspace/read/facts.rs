//! Facts of the run: host, versions, devices, and the program that wrote the file.

use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{ArgValue, EventSink};

use super::index::{PlaneFrame, PlaneIndex};
use super::span::Span;
use crate::xspace::well_known_stats::{METADATA_PLANE, Role, TASK_ENVIRONMENT};
use crate::xspace::wire;

/// Maximum length of plane stats that become facts.
const MAX_FACT_BYTES: usize = 4096;

/// Properties derived from the name of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaneName {
    /// Whether the plane belongs to a device.
    pub(crate) is_device: bool,
    /// Ordinal of the device.
    pub(crate) device: Option<u32>,
    /// Sort position among the planes: devices, then host threads, then the rest.
    pub(crate) rank: i64,
}

/// Parses a plane's name.
pub(crate) fn plane_name(name: &str) -> PlaneName {
    let device = |rest: &str| {
        let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits.get(..end).and_then(|digits| digits.parse().ok())
    };
    let found = |is_device, device, rank| PlaneName {
        is_device,
        device,
        rank,
    };
    if let Some(rest) = name.strip_prefix("/device:") {
        let custom = rest.starts_with("CUSTOM");
        let ordinal = if custom { None } else { device(rest) };
        found(true, ordinal, i64::from(custom))
    } else if name.starts_with("#Chip") || name.starts_with("/virtualdevice:") {
        found(true, device(name), 1)
    } else if is_neuron_trace(name) {
        // Each line of the plane is a core.
        found(true, None, 0)
    } else if name.starts_with("/host:CPU") {
        found(false, None, 2)
    } else {
        found(false, None, 3)
    }
}

/// Returns whether a plane holds the timeline of Neuron devices, as their runtime writes it.
fn is_neuron_trace(name: &str) -> bool {
    name.starts_with("/host:Neuron-runtime") && name.ends_with("/neuron_trace.json")
}

/// Parses the core from a line's name in a plane of Neuron devices: 3 for `nc3`.
pub(crate) fn neuron_core(line_name: &str) -> Option<u32> {
    line_name.strip_prefix("nc")?.parse().ok()
}

/// Parses the stream from a line's name, such as `Stream #13(Compute)`.
pub(crate) fn stream_number(line_name: &str) -> Option<i64> {
    let rest = line_name.strip_prefix("Stream #")?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// Parses a compiled program's name and number, such as `jit_step(8)`.
pub(crate) fn module_name(text: &str) -> (&str, Option<u64>) {
    let split = text
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once('('));
    match split {
        Some((name, number)) => match number.parse() {
            Ok(number) => (name, Some(number)),
            Err(_) => (text, None),
        },
        None => (text, None),
    }
}

/// Evidence of the program that wrote the file.
#[derive(Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a sign that was seen or not; any of them may come together"
)]
pub(crate) struct Origin {
    jax_version: Option<String>,
    has_writer: bool,
    jax: bool,
    torch_xla: bool,
    /// A thread of PyTorch: in files of other writers, a sign of PyTorch/XLA.
    torch: bool,
    tensorflow: bool,
    neuron: bool,
    device: bool,
    hlo: bool,
    python: bool,
}

impl Origin {
    /// Records the name of a line.
    pub(crate) fn see_line(&mut self, name: &str) {
        self.torch_xla |= name.starts_with("tf_pytorchxla");
        self.torch |= name.starts_with("pt_autograd");
        self.jax |= name.starts_with("py_xla_");
        self.tensorflow |= name == "TensorFlow Ops" || name == "TensorFlow Name Scope";
    }

    /// Records the name of an event metadata of the host.
    pub(crate) fn see_event(&mut self, name: &str) {
        match name.as_bytes().first() {
            Some(b'$') => self.python = true,
            Some(b'P') => self.jax |= name.starts_with("PjitFunction("),
            Some(b'X') => self.torch_xla |= name.starts_with("XLAGraphExecutor::"),
            Some(b'F') => {
                self.tensorflow |= name == "FunctionRun" || name.starts_with("ForwardMatMul");
            }
            Some(b'E') => self.tensorflow |= name.starts_with("ExecutorState::Process"),
            _ => {}
        }
    }

    /// Records the name of a plane, and emits its stats as facts.
    pub(crate) fn see_plane<S: EventSink>(
        &mut self,
        file: &[u8],
        name: &str,
        index: &PlaneIndex,
        frame: &PlaneFrame,
        sink: &mut S,
    ) {
        let kind = plane_name(name);
        self.device |= kind.is_device;
        self.neuron |= name.contains("Neuron") || name.contains("neuron");
        self.hlo |= name == METADATA_PLANE && !index.events.items().is_empty();
        for stat in &frame.stats {
            let Ok(stat) = wire::stat(stat.get(file)) else {
                continue;
            };
            let role = index.role(stat.metadata_id);
            if matches!(role, Role::ProfileStart) {
                continue;
            }
            index.visit_stat(file, stat, &mut |key, value| {
                self.fact(name, kind, key, value, sink);
            });
        }
    }

    fn fact<S: EventSink>(
        &mut self,
        plane: &str,
        kind: PlaneName,
        key: &str,
        value: ArgValue<'_>,
        sink: &mut S,
    ) {
        match value {
            ArgValue::Bytes(_) => return,
            ArgValue::Str(text) | ArgValue::Json(text) if text.len() > MAX_FACT_BYTES => return,
            _ => {}
        }
        if let (Some(device), true) = (kind.device, kind.is_device) {
            match key {
                "memory_size" => sink.fact(&format!("device.{device}.memory_bytes"), value),
                "gpu_device_name" | "device_type_string" => {
                    sink.fact(&format!("device.{device}.name"), value);
                }
                _ => sink.fact(&format!("device.{device}.{key}"), value),
            }
            return;
        }
        match (key, value) {
            ("process_id", _) => sink.fact("pid", value),
            ("jax_version", ArgValue::Str(version)) => {
                self.jax_version = Some(version.to_owned());
                sink.fact(key, value);
            }
            ("writer", _) => {
                self.has_writer = true;
                sink.fact(key, value);
            }
            ("profile_stop_time", _) if plane == TASK_ENVIRONMENT => {
                sink.fact("unix_stop_ns", value);
            }
            _ => sink.fact(key, value),
        }
    }

    /// Emits the badges and the writer's name.
    pub(crate) fn conclude<S: EventSink>(&self, sink: &mut S) {
        let jax = self.jax_version.is_some() || self.jax;
        let torch_xla = self.torch_xla || self.torch && !self.has_writer;
        if jax {
            Producer::Jax.emit(sink);
        }
        if torch_xla {
            Producer::PyTorch.emit(sink);
        }
        if self.tensorflow && !jax && !torch_xla {
            Producer::TensorFlow.emit(sink);
        }
        if self.neuron {
            Producer::Neuron.emit(sink);
        }
        // The devices of other writers' files are XLA's.
        let device = self.device && !self.has_writer;
        if torch_xla || (self.hlo || device) && !jax && !self.tensorflow && !self.neuron {
            Producer::Xla.emit(sink);
        }
        if self.python {
            Producer::Python.emit(sink);
        }
        if self.has_writer {
            return;
        }
        if let Some(version) = &self.jax_version {
            sink.fact("writer", ArgValue::Str(&format!("jax {version}")));
        } else if torch_xla {
            sink.fact("writer", ArgValue::Str("torch_xla"));
        }
    }
}

/// Decodes a text of the file; also returns whether it was not UTF-8.
pub(crate) fn text(file: &[u8], span: Span) -> (std::borrow::Cow<'_, str>, bool) {
    let text = String::from_utf8_lossy(span.get(file));
    let bad = matches!(text, std::borrow::Cow::Owned(_));
    (text, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plane_names_tell_devices() {
        let device = |name| plane_name(name).device;
        assert_eq!(device("/device:GPU:3"), Some(3));
        assert_eq!(device("/device:TPU:12"), Some(12));
        assert_eq!(device("/device:TPU:1 SparseCore 4"), Some(1));
        assert_eq!(device("/device:CUSTOM:Megascale Trace"), None);
        assert_eq!(device("#Chip2 TPU Non-Core HLO"), Some(2));
        assert!(!plane_name("/host:CPU").is_device);
        let neuron = "/host:Neuron-runtime:profile//a_1/model1/node1/plugins/neuron/7/";
        assert!(plane_name(&format!("{neuron}neuron_trace.json")).is_device);
        assert!(!plane_name(&format!("{neuron}neuron_hlo_op.json")).is_device);
        assert_eq!(neuron_core("nc12"), Some(12));
        assert_eq!(neuron_core("nccl"), None);
        assert_eq!(stream_number("Stream #13(Compute)"), Some(13));
        assert_eq!(stream_number("Stream #2"), Some(2));
        assert_eq!(stream_number("XLA Ops"), None);
    }

    #[test]
    fn module_names_end_in_their_number() {
        assert_eq!(module_name("jit_step(8)"), ("jit_step", Some(8)));
        assert_eq!(module_name("jit_(f)(12)"), ("jit_(f)", Some(12)));
        assert_eq!(module_name("main"), ("main", None));
        assert_eq!(module_name("f(x)"), ("f(x)", None));
    }
}
