//! Known faults of the profilers of installed packages, by their versions.
//!
//! A fault is listed if a recording shows it: it ends the program, loses events or gives wrong figures. The versions are
//! the series of releases in which it was seen; `docs/reference/doctor.md` names the sources.

use super::Check;
use super::python::{Python, numbers};

/// Versions from the first to before the second.
type Versions = (&'static [u64], &'static [u64]);

/// Every version.
const ALL: Versions = (&[], &[u64::MAX]);

/// What solves it.
enum Help {
    /// Arguments of pip.
    Pip(&'static str),
    /// Another command, or a line of a program.
    Line(&'static str),
}

struct Fault {
    id: &'static str,
    /// Packages of these versions that are installed together.
    packages: &'static [(&'static str, Versions)],
    /// What happens, after the version.
    text: &'static str,
    help: Help,
    /// Whether recordings of stepscope suffer too.
    hinders: bool,
}

const FAULTS: [Fault; 12] = [
    Fault {
        id: "fault_jaxlib_libtpu",
        packages: &[
            ("jaxlib", (&[0, 10, 2], &[0, 10, 3])),
            ("libtpu", (&[0, 0, 51], &[u64::MAX])),
        ],
        text: "jaxlib expects a smaller table of profiler functions than this libtpu has: starting a profiler ends \
            the program with SIGSEGV",
        help: Help::Pip("install --upgrade 'jax[tpu]'"),
        hinders: true,
    },
    Fault {
        id: "fault_jax_options",
        packages: &[("jax", (&[0, 10], &[0, 11]))],
        text: "jax.profiler traces Python calls by default, and ignores misspelled options and device_tracer_level \
            without a word (jax-ml/jax#39938)",
        help: Help::Line("import stepscope.jax as profiler"),
        hinders: false,
    },
    Fault {
        id: "fault_jax_cut",
        packages: &[("jax", (&[0, 4], &[0, 11]))],
        text: "trace.json.gz and the Perfetto link of jax.profiler end after 1,000,000 events without a word \
            (jax-ml/jax#21295)",
        help: Help::Line("stepscope LOGDIR, which reads the complete HOST.xplane.pb"),
        hinders: false,
    },
    Fault {
        id: "fault_profile_plugin",
        packages: &[
            ("tensorboard-plugin-profile", ALL),
            ("jax", (&[0, 8], &[u64::MAX])),
        ],
        text: "TensorBoard's old profile plugin fails on traces of JAX 0.8 and newer: ids of instructions are too \
            large for it (AMD-AGI/TraceLens#501)",
        help: Help::Pip("uninstall --yes tensorboard-plugin-profile"),
        hinders: true,
    },
    Fault {
        id: "fault_torch_exit",
        packages: &[("torch", (&[2, 9], &[2, 10]))],
        text: "a program that ends while torch.profiler records ends with SIGSEGV, and its recording is lost",
        help: Help::Line("stepscope run -- COMMAND, which ends the profiler first"),
        hinders: false,
    },
    Fault {
        id: "fault_torch_stacks",
        packages: &[("torch", (&[2, 9], &[2, 10]))],
        text: "with_stack=True of torch.profiler records no stacks without _ExperimentalConfig(verbose=True)",
        help: Help::Line("from stepscope.torch import profile"),
        hinders: false,
    },
    Fault {
        id: "fault_cupti_times",
        packages: &[
            ("torch", ALL),
            ("nvidia-cuda-cupti-cu12", (&[12, 6, 80], &[13])),
        ],
        text: "CUPTI of CUDA 12.6 update 2 to 13.0 gives some kernels no times, and torch.profiler leaves these out \
            (pytorch/pytorch#192021)",
        help: Help::Line("stepscope run --gpu collector -- COMMAND, or CUDA 13.1"),
        hinders: false,
    },
    Fault {
        id: "fault_torch_xla_port",
        packages: &[("torch-xla", (&[2, 9], &[2, 10]))],
        text: "xp.start_server reports no error if its port is in use: nothing can be captured then",
        help: Help::Line("import stepscope.torch_xla as xp"),
        hinders: false,
    },
    Fault {
        id: "fault_lightning_advanced",
        packages: &[("lightning", (&[2, 6], &[2, 7]))],
        text: "AdvancedProfiler loses what an outer action does after an inner one",
        help: Help::Line("from stepscope.lightning import AdvancedProfiler"),
        hinders: false,
    },
    Fault {
        id: "fault_neuron_plugins",
        packages: &[
            ("tensorboard-plugin-neuron", ALL),
            ("tensorboard-plugin-neuronx", ALL),
        ],
        text: "the two plugins of Neuron for TensorBoard exclude each other",
        help: Help::Pip("uninstall --yes tensorboard-plugin-neuron"),
        hinders: true,
    },
    Fault {
        id: "fault_neuron_plugin",
        packages: &[
            ("tensorboard-plugin-neuronx", ALL),
            ("torch-neuronx", (&[2, 9, 0, 2, 13], &[u64::MAX])),
        ],
        text: "Neuron 2.29 and newer does not support its plugin for TensorBoard",
        help: Help::Line("stepscope logs/plugins/neuron"),
        hinders: false,
    },
    Fault {
        id: "fault_torch_neuronx_xla",
        packages: &[("torch-neuronx", (&[2, 10], &[u64::MAX]))],
        text: "from 2.10 on it is not based on PyTorch/XLA: stepscope.neuron captures nothing",
        help: Help::Pip("install 'torch-neuronx==2.9.*'"),
        hinders: true,
    },
];

/// Lists the known faults of the installed packages.
pub(super) fn checks(python: &Python) -> Vec<Check> {
    let found = FAULTS.iter().filter_map(|fault| fault.check(python));
    found.collect()
}

impl Fault {
    /// Returns the check if the packages have these versions.
    fn check(&self, python: &Python) -> Option<Check> {
        const TITLE: &str = "Known fault";
        let mut installed = Vec::new();
        for (name, (from, before)) in self.packages {
            let version = python.package(name)?;
            let number = numbers(version);
            if number.as_slice() < *from || number.as_slice() >= *before {
                return None;
            }
            installed.push(format!("{name} {version}"));
        }
        let found = format!("{}: {}", installed.join(", "), self.text);
        let help = match self.help {
            Help::Pip(arguments) => python.pip(arguments),
            Help::Line(line) => line.to_owned(),
        };
        Some(if self.hinders {
            Check::problem(self.id, TITLE, found, help)
        } else {
            Check::ok(self.id, TITLE, found).with_help(help)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::python::fake_python;
    use super::*;

    fn found(packages: &[(&str, &str)]) -> Vec<(&'static str, State)> {
        let checks = checks(&fake_python(&[3, 12, 1], packages)).into_iter();
        checks
            .map(|check| {
                assert!(check.help.is_some_and(|help| !help.is_empty()));
                (check.id, check.state)
            })
            .collect()
    }

    #[test]
    fn faults_belong_to_versions() {
        let (ok, problem) = (State::Ok, State::Problem);
        for (packages, expected) in [
            (&[][..], &[][..]),
            (&[("torch", "2.8.0"), ("lightning", "2.5.1")], &[]),
            (
                &[
                    ("torch", "2.9.1+cu128"),
                    ("nvidia-cuda-cupti-cu12", "12.8.90"),
                ],
                &[
                    ("fault_torch_exit", ok),
                    ("fault_torch_stacks", ok),
                    ("fault_cupti_times", ok),
                ],
            ),
            (
                &[("torch", "2.11.0"), ("nvidia-cuda-cupti-cu12", "12.6.37")],
                &[],
            ),
            (&[("nvidia-cuda-cupti-cu12", "12.8.90")], &[]),
            (
                &[
                    ("jax", "0.10.2"),
                    ("jaxlib", "0.10.2"),
                    ("libtpu", "0.0.51"),
                ],
                &[
                    ("fault_jaxlib_libtpu", problem),
                    ("fault_jax_options", ok),
                    ("fault_jax_cut", ok),
                ],
            ),
            (
                &[("jax", "0.8.0"), ("tensorboard-plugin-profile", "2.19.0")],
                &[("fault_jax_cut", ok), ("fault_profile_plugin", problem)],
            ),
            (&[("torch-xla", "2.9.0")], &[("fault_torch_xla_port", ok)]),
            (
                &[("lightning", "2.6.6")],
                &[("fault_lightning_advanced", ok)],
            ),
            (
                &[
                    ("tensorboard-plugin-neuron", "2.4.0.0"),
                    ("tensorboard-plugin-neuronx", "2.6.7.0"),
                ],
                &[("fault_neuron_plugins", problem)],
            ),
            (
                &[
                    ("torch-neuronx", "2.10.0.1"),
                    ("tensorboard-plugin-neuronx", "2.6.7.0"),
                ],
                &[
                    ("fault_neuron_plugin", ok),
                    ("fault_torch_neuronx_xla", problem),
                ],
            ),
        ] {
            assert_eq!(found(packages), expected, "{packages:?}");
        }
    }

    #[test]
    fn each_fault_has_a_name_of_its_own() {
        let mut ids: Vec<&str> = FAULTS.iter().map(|fault| fault.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), FAULTS.len());
    }
}
