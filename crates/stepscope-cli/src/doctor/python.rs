//! The Python of the programs to record, and its packages.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde::Deserialize;

use super::Check;
use super::machine::Machine;

/// The program that Python runs.
const PROBE: &str = include_str!("probe.py");
/// Time in which Python has to answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest answer.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// Oldest version that can be recorded.
const OLDEST: [u64; 2] = [3, 10];
/// Oldest torch with hooks for the steps of all optimizers.
const OLDEST_TORCH: [u64; 2] = [2, 0];
/// Packages that all contain TensorBoard, or are part of it: of each group one may be installed.
const TENSORBOARD: [&[&str]; 3] = [
    &["tensorboard", "tb-nightly"],
    &["tensorboard-plugin-profile", "tbp-nightly", "xprof"],
    &["tensorflow", "tf-nightly"],
];

/// What Python prints.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Python {
    version: Vec<u64>,
    executable: String,
    packages: BTreeMap<String, String>,
    /// CUPTI libraries of its packages.
    pub(super) cupti: Vec<PathBuf>,
}

impl Python {
    /// Returns the version of a package.
    pub(super) fn package(&self, name: &str) -> Option<&str> {
        self.packages.get(name).map(String::as_str)
    }

    /// Returns the command that installs something in this Python.
    pub(super) fn pip(&self, arguments: &str) -> String {
        format!("{} -m pip {arguments}", self.executable)
    }
}

/// Starts Python. The error is the check that says why not: no Python is absent, one that does not start hinders
/// recording.
pub(super) fn find(machine: &Machine, named: Option<&Path>) -> Result<Python, Check> {
    let file = match named {
        Some(file) => file.to_owned(),
        None => ["python", "python3"]
            .into_iter()
            .find_map(|name| machine.program(name))
            .ok_or_else(|| {
                Check::absent("python", "Python", "neither python nor python3 is on PATH")
            })?,
    };
    let failed = |cause: &dyn std::fmt::Display| {
        let found = format!("{}: {cause}", file.display());
        let help = "name another Python: stepscope doctor --python .venv/bin/python";
        Check::problem("python", "Python", found, help)
    };
    let mut child = Command::new(&file)
        .args(["-c", PROBE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    let (send, answer) = mpsc::sync_channel(1);
    if let Some(stdout) = child.stdout.take() {
        let read = move || {
            let mut text = String::new();
            let _ = stdout.take(MAX_ANSWER_BYTES).read_to_string(&mut text);
            let _ = send.send(text);
        };
        let named = std::thread::Builder::new().name("stepscope-doctor".to_owned());
        named.spawn(read).map_err(|error| failed(&error))?;
    }
    let text = answer.recv_timeout(PATIENCE);
    let _ = child.kill();
    let _ = child.wait();
    let text = text.map_err(|_timeout| failed(&"it does not answer"))?;
    serde_json::from_str(&text).map_err(|_json| failed(&"it does not run a small program"))
}

/// Checks Python and its packages.
pub(super) fn checks(machine: &Machine, python: Result<&Python, &Check>) -> Vec<Check> {
    let python = match python {
        Ok(python) => python,
        Err(check) => return vec![check.clone()],
    };
    let mut found = vec![interpreter(python), package(machine, python)];
    found.extend(jax(python));
    found.extend(torch(python));
    found.extend(torch_xla(python));
    found.extend(lightning(python));
    found.extend(tensorboard(python));
    found
}

fn interpreter(python: &Python) -> Check {
    let version: Vec<String> = python.version.iter().map(u64::to_string).collect();
    let version = format!("{}, {}", version.join("."), python.executable);
    if python.version.as_slice() < OLDEST.as_slice() {
        return Check::problem(
            "python",
            "Python",
            format!("{version}: too old, 3.10 is needed"),
            "python3.12 -m venv .venv",
        );
    }
    Check::ok("python", "Python", version)
}

fn package(machine: &Machine, python: &Python) -> Check {
    const ID: &str = "package";
    const TITLE: &str = "stepscope package";
    let own = env!("CARGO_PKG_VERSION");
    match python.package("stepscope") {
        Some(version) if version == own => Check::ok(ID, TITLE, version),
        Some(version) => Check::problem(
            ID,
            TITLE,
            format!("{version}, and this command is {own}"),
            python.pip(&format!("install stepscope=={own}")),
        ),
        None if machine.variable("STEPSCOPE_PACKAGE").is_some() => Check::ok(
            ID,
            TITLE,
            "not in this Python; 'stepscope run' lends programs that of the command",
        ),
        None => Check::problem(
            ID,
            TITLE,
            "not in this Python: its programs cannot be recorded",
            python.pip("install stepscope"),
        ),
    }
}

/// Returns the numbers of a version, up to the first part that is none.
pub(super) fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split('.');
    parts.map_while(|part| part.parse().ok()).collect()
}

fn jax(python: &Python) -> Option<Check> {
    const ID: &str = "jax";
    const TITLE: &str = "JAX";
    let jax = python.package("jax")?;
    let Some(jaxlib) = python.package("jaxlib") else {
        let help = python.pip(&format!("install 'jax=={jax}'"));
        return Some(Check::problem(
            ID,
            TITLE,
            format!("{jax} without jaxlib"),
            help,
        ));
    };
    let versions = format!("{jax}, jaxlib {jaxlib}");
    if numbers(jaxlib) > numbers(jax) {
        return Some(Check::problem(
            ID,
            TITLE,
            format!("{versions}: JAX refuses a newer jaxlib"),
            python.pip(&format!("install 'jax=={jaxlib}'")),
        ));
    }
    Some(Check::ok(ID, TITLE, versions))
}

fn torch(python: &Python) -> Option<Check> {
    const ID: &str = "torch";
    const TITLE: &str = "PyTorch";
    let torch = python.package("torch")?;
    if numbers(torch).as_slice() < OLDEST_TORCH.as_slice() {
        return Some(Check::problem(
            ID,
            TITLE,
            format!(
                "{torch}: 'stepscope run' derives steps from optimizers of torch 2.0 and newer"
            ),
            python.pip("install --upgrade torch"),
        ));
    }
    Some(Check::ok(ID, TITLE, torch))
}

fn torch_xla(python: &Python) -> Option<Check> {
    const ID: &str = "torch_xla";
    const TITLE: &str = "PyTorch/XLA";
    let torch_xla = python.package("torch-xla")?;
    let torch = python.package("torch").unwrap_or("none");
    let versions = format!("{torch_xla}, torch {torch}");
    let minor = |version: &str| numbers(version).into_iter().take(2).collect::<Vec<_>>();
    if minor(torch_xla) != minor(torch) {
        let wanted: Vec<String> = minor(torch_xla).iter().map(u64::to_string).collect();
        let wanted = wanted.join(".");
        return Some(Check::problem(
            ID,
            TITLE,
            format!("{versions}: it loads only with torch {wanted}"),
            python.pip(&format!("install 'torch=={wanted}.*'")),
        ));
    }
    Some(Check::ok(ID, TITLE, versions))
}

fn lightning(python: &Python) -> Option<Check> {
    let names = ["lightning", "pytorch-lightning"];
    let found: Vec<String> = names
        .into_iter()
        .filter_map(|name| Some(format!("{name} {}", python.package(name)?)))
        .collect();
    (!found.is_empty()).then(|| Check::ok("lightning", "Lightning", found.join(", ")))
}

/// Two `TensorBoard` packages in one environment end it with "Duplicate plugins".
fn tensorboard(python: &Python) -> Option<Check> {
    const ID: &str = "tensorboard";
    const TITLE: &str = "TensorBoard";
    let installed = |group: &&[&'static str]| -> Vec<&'static str> {
        let names = group.iter().copied();
        names
            .filter(|name| python.package(name).is_some())
            .collect()
    };
    let groups: Vec<Vec<&str>> = TENSORBOARD.iter().map(installed).collect();
    let clash = groups.iter().find(|group| group.len() > 1);
    if let Some(clash) = clash {
        let all: Vec<&str> = groups.concat();
        return Some(Check::problem(
            ID,
            TITLE,
            format!(
                "{} are installed, which register the same plugins",
                clash.join(" and ")
            ),
            format!(
                "{}; {}",
                python.pip(&format!("uninstall --yes {}", all.join(" "))),
                python.pip("install tensorboard")
            ),
        ));
    }
    let version = python
        .package("tensorboard")
        .or(python.package("tb-nightly"))?;
    Some(Check::ok(ID, TITLE, version))
}

/// Returns a Python with these packages.
#[cfg(test)]
pub(super) fn fake_python(version: &[u64], packages: &[(&str, &str)]) -> Python {
    let packages = packages.iter();
    Python {
        version: version.to_vec(),
        executable: "/venv/bin/python".to_owned(),
        packages: packages
            .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
            .collect(),
        cupti: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::fake::FakeMachine;
    use super::*;

    fn problems(python: &Python) -> Vec<(&'static str, String)> {
        let machine = FakeMachine::new().variable("STEPSCOPE_PACKAGE", "/lib/stepscope");
        let found = checks(&machine.machine, Ok(python)).into_iter();
        let problems = found.filter(|check| check.state == State::Problem);
        problems
            .map(|check| (check.id, check.help.unwrap()))
            .collect()
    }

    #[test]
    fn versions_that_fit_are_no_problem() {
        let fits = fake_python(
            &[3, 12, 1],
            &[
                ("jax", "0.10.2"),
                ("jaxlib", "0.10.2"),
                ("torch", "2.9.0+cpu"),
                ("torch-xla", "2.9.0"),
                ("lightning", "2.6.6"),
                ("tensorboard", "2.21.0"),
                ("xprof", "2.24.2"),
            ],
        );
        assert_eq!(problems(&fits), []);
    }

    #[test]
    fn each_mismatch_has_a_command() {
        type Case<'a> = (&'a [u64], &'a [(&'a str, &'a str)], &'a str, String);
        let pip = "/venv/bin/python -m pip ";
        let cases: [Case<'_>; 6] = [
            (
                &[3, 9, 7],
                &[],
                "python",
                "python3.12 -m venv .venv".to_owned(),
            ),
            (
                &[3, 12, 1],
                &[("jax", "0.4.30"), ("jaxlib", "0.4.31")],
                "jax",
                format!("{pip}install 'jax==0.4.31'"),
            ),
            (
                &[3, 12, 1],
                &[("torch", "1.13.1")],
                "torch",
                format!("{pip}install --upgrade torch"),
            ),
            (
                &[3, 12, 1],
                &[("torch", "2.9.0"), ("torch-xla", "2.8.1")],
                "torch_xla",
                format!("{pip}install 'torch==2.8.*'"),
            ),
            (
                &[3, 12, 1],
                &[("tensorboard", "2.1"), ("tb-nightly", "2.2")],
                "tensorboard",
                format!("{pip}uninstall --yes tensorboard tb-nightly; {pip}install tensorboard"),
            ),
            (
                &[3, 12, 1],
                &[("stepscope", "0.0.0")],
                "package",
                format!("{pip}install stepscope=={}", env!("CARGO_PKG_VERSION")),
            ),
        ];
        for (version, packages, id, help) in cases {
            assert_eq!(
                problems(&fake_python(version, packages)),
                [(id, help)],
                "{packages:?}"
            );
        }
    }

    #[test]
    fn python_on_path_is_asked() {
        let script = "#!/bin/sh\necho '{\"version\": [3, 11, 7], \"executable\": \"/x\", \"packages\": {\"jax\": \"1\"}, \"cupti\": []}'\n";
        let fake = FakeMachine::new().program("python3", script);
        let found = find(&fake.machine, None).unwrap();
        assert_eq!(
            (found.version.as_slice(), found.package("jax")),
            (&[3, 11, 7][..], Some("1"))
        );
        let fake = FakeMachine::new().program("python", "#!/bin/sh\necho no; exit 1\n");
        let check = find(&fake.machine, None).unwrap_err();
        assert_eq!(check.state, State::Problem);
        assert!(
            check.found.contains("does not run a small program"),
            "{check:?}"
        );
        let check = find(&fake.machine, Some(Path::new("/no/such/python"))).unwrap_err();
        assert_eq!(check.state, State::Problem);
        assert!(check.found.starts_with("/no/such/python: "), "{check:?}");
        let check = find(&FakeMachine::new().machine, None).unwrap_err();
        assert_eq!(check.state, State::Absent);
        assert!(check.found.contains("on PATH"), "{check:?}");
    }
}
