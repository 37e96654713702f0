//! The official conformance suite of the Model Context Protocol, against `stepscope view --mcp`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::part::Outcome;
use crate::programs::Build;
use crate::{shell, ui};

/// The suite, on npm.
const SUITE: &str = "@modelcontextprotocol/conformance@0.1.16";
/// Script of the suite below `node_modules`.
const SCRIPT: &str = "@modelcontextprotocol/conformance/dist/index.js";
/// Major version of Node.js that the suite needs.
const NODE_MAJOR: u32 = 22;
/// A package with a binary of it.
const NODE: &str = "node@22";

/// The scenarios that ask nothing of the suite's reference server.
const SCENARIOS: [&str; 6] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
];

/// The other scenarios, by the reason why they are left out.
const LEFT_OUT: [(&str, &[&str]); 5] = [
    (
        "call tools of the reference server",
        &[
            "tools-call-simple-text",
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
            "tools-call-with-logging",
            "tools-call-error",
            "tools-call-with-progress",
            "tools-call-sampling",
            "tools-call-elicitation",
            "json-schema-2020-12",
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
            "server-sse-polling",
        ],
    ),
    (
        "read resources of the reference server",
        &[
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
        ],
    ),
    (
        "get prompts of the reference server",
        &[
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ],
    ),
    (
        "need sessions, event streams or subscriptions: the server remembers nothing between calls (ADR 0023)",
        &[
            "server-sse-multiple-streams",
            "resources-subscribe",
            "resources-unsubscribe",
        ],
    ),
    (
        "need an optional capability that the server does not announce",
        &["logging-set-level", "completion-complete"],
    ),
];

/// Runs the scenarios.
pub(crate) fn test() -> Result<Outcome> {
    if let Some(missing) = ui::missing_npm() {
        return Ok(missing);
    }
    let suite = match Suite::install() {
        Ok(suite) => suite,
        Err(error) => {
            return Ok(Outcome::NotRun(format!(
                "npm could not install the suite ({error:#}); make its registry reachable and run it again: {SUITE}, {NODE}"
            )));
        }
    };
    check_list(&shell::output(suite.command().args(["list", "--server"]))?)?;
    let server = Server::start(&Build::Dev.command()?, &suite.folder)?;
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let mut failed = Vec::new();
    for name in SCENARIOS {
        let mut command = suite.command();
        command.args(["server", "--url", &url, "--scenario", name]);
        if let Err(error) = shell::run(&mut command) {
            println!("{error:#}");
            failed.push(name);
        }
    }
    println!("\nscenarios that are left out");
    for (reason, names) in LEFT_OUT {
        println!("  {reason}: {}", names.join(", "));
    }
    ensure!(failed.is_empty(), "scenarios fail: {}", failed.join(", "));
    println!("{} scenarios pass", SCENARIOS.len());
    Ok(Outcome::Ok)
}

/// Checks that each scenario of the suite is run or left out.
fn check_list(list: &str) -> Result<()> {
    let names = list.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("- ")?;
        name.split_whitespace().next()
    });
    let known: BTreeSet<&str> = names.collect();
    let left_out = LEFT_OUT.iter().flat_map(|(_reason, names)| names.iter());
    let ours: BTreeSet<&str> = SCENARIOS.iter().chain(left_out).copied().collect();
    let others: Vec<&str> = known.symmetric_difference(&ours).copied().collect();
    ensure!(
        others.is_empty(),
        "the suite and xtask/src/conformance.rs list different scenarios: {}",
        others.join(", ")
    );
    Ok(())
}

/// The installed suite.
struct Suite {
    folder: PathBuf,
    node: PathBuf,
}

impl Suite {
    /// Installs the suite below the target folder, and Node.js if that of the machine is too old.
    fn install() -> Result<Self> {
        let folder = shell::target_dir().join("npm/conformance");
        let own = node_major().is_none_or(|major| major < NODE_MAJOR);
        let suite = Self {
            node: if own {
                folder.join("node_modules/node/bin/node")
            } else {
                "node".into()
            },
            folder,
        };
        let packages: &[&str] = if own { &[SUITE, NODE] } else { &[SUITE] };
        let stamp = suite.folder.join("installed.txt");
        let wanted = packages.join("\n");
        if std::fs::read_to_string(&stamp).unwrap_or_default() == wanted {
            return Ok(suite);
        }
        if suite.folder.exists() {
            std::fs::remove_dir_all(&suite.folder)
                .with_context(|| format!("cannot remove {}", suite.folder.display()))?;
        }
        std::fs::create_dir_all(&suite.folder)
            .with_context(|| format!("cannot create {}", suite.folder.display()))?;
        shell::run(
            shell::program("npm")
                .arg("install")
                .arg("--prefix")
                .arg(&suite.folder)
                .args(["--no-audit", "--no-fund", "--loglevel=error"])
                .args(packages),
        )?;
        std::fs::write(&stamp, wanted)
            .with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(suite)
    }

    fn command(&self) -> Command {
        let mut command = shell::program(&self.node);
        command.arg(self.folder.join("node_modules").join(SCRIPT));
        command
    }
}

/// Returns the major version of the machine's Node.js.
fn node_major() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    major(&String::from_utf8_lossy(&output.stdout))
}

/// Reads `v22.1.0`.
fn major(version: &str) -> Option<u32> {
    version
        .trim()
        .strip_prefix('v')?
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// A server over a recording of the checkout, killed at the end.
struct Server {
    child: Child,
    port: u16,
    /// Where it prints; open as long as it runs.
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it; its cache lies in `home`.
    fn start(command: &Path, home: &Path) -> Result<Self> {
        let mut child = shell::program(command)
            .args(["view", "--mcp", "--port", "0", "tests/data/example"])
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("XDG_DATA_HOME", home.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.display()))?;
        let output = child.stdout.take().context("the server has no output")?;
        let mut server = Self {
            child,
            port: 0,
            output: BufReader::new(output),
        };
        let mut line = String::new();
        while server.output.read_line(&mut line)? > 0 {
            if let Some(port) = line.strip_prefix("Port: ") {
                server.port = port.trim().parse().context("the server prints no port")?;
            }
            if line.starts_with("stepscope at ") {
                ensure!(server.port != 0, "the server prints no port");
                return Ok(server);
            }
            line.clear();
        }
        bail!("the server ended");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already if this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_that_are_neither_run_nor_left_out_are_named() {
        let left_out = LEFT_OUT.iter().flat_map(|(_reason, names)| names.iter());
        let names: Vec<&str> = SCENARIOS.iter().chain(left_out).copied().collect();
        assert_eq!(names.len(), 32);
        let list = format!(
            "Server scenarios:\n  - {} [2025-11-25]\n",
            names.join("\n  - ")
        );
        assert!(check_list(&list).is_ok());
        let error = check_list(&format!("{list}  - tasks-list\n")).unwrap_err();
        assert!(
            error.to_string().ends_with("scenarios: tasks-list"),
            "{error}"
        );
        let error = check_list(&list.replace("  - ping\n", "")).unwrap_err();
        assert!(error.to_string().ends_with("scenarios: ping"), "{error}");
    }

    #[test]
    fn major_version_is_read() {
        assert_eq!(major("v22.21.1\n"), Some(22));
        assert_eq!(major("no version"), None);
    }
}
