//! The release workflow and the container file: their commands exist, and their parts fit together.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::Request;
use crate::{laws, shell};

const WORKFLOW: &str = ".github/workflows/release.yml";
const CONTAINER: &str = "Containerfile";

/// Checks both files.
pub(super) fn check(tools: &Path) -> Result<()> {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let json = shell::output(shell::program(tools).args(["-c", script, WORKFLOW]))?;
    let workflow: Value = serde_json::from_str(&json)?;
    let mut faults = check_jobs(&workflow)?;
    let container = String::from_utf8(shell::read(&shell::root().join(CONTAINER))?)?;
    faults.extend(check_container(&container, &shell::root()));
    laws::report(faults).map(|_ok| ())
}

/// Returns the faults of the workflow's jobs.
fn check_jobs(workflow: &Value) -> Result<Vec<String>> {
    let jobs = workflow["jobs"]
        .as_object()
        .context("the release workflow has no jobs")?;
    ensure!(
        workflow["permissions"]["contents"] == "read",
        "the release workflow may write by default: set permissions: contents: read"
    );
    let mut faults = Vec::new();
    for (name, job) in jobs {
        let mut add = |fault: String| faults.push(format!("{WORKFLOW}, job {name}: {fault}"));
        let needed = match &job["needs"] {
            Value::Null => Vec::new(),
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        for other in needed {
            if !jobs.contains_key(other) {
                add(format!("it needs {other}, which is no job"));
            }
        }
        // What differs from a dry run: the uploads, and nothing is built in their jobs.
        let uploads = !job["permissions"].is_null();
        let is_tagged = job["if"] == "github.ref_type == 'tag'";
        if uploads != is_tagged {
            add("a job with permissions runs on a tag only, and every other job always".to_owned());
        }
        for step in job["steps"].as_array().context("a job without steps")? {
            if let Some(action) = step["uses"].as_str()
                && !action
                    .split_once('@')
                    .is_some_and(|(name, version)| name.contains('/') && !version.is_empty())
            {
                add(format!("the action {action} has no version"));
            }
            let lines = step["run"].as_str().unwrap_or_default();
            for command in xtask_commands(lines) {
                if let Err(error) = check_command(&command) {
                    add(format!("{command}: {error:#}"));
                }
            }
        }
    }
    Ok(faults)
}

/// Returns the faults of the container file.
fn check_container(text: &str, root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let commands = xtask_commands(text);
    if commands.is_empty() {
        faults.push(format!("{CONTAINER} builds nothing with cargo xtask"));
    }
    for command in commands {
        if let Err(error) = check_command(&command) {
            faults.push(format!("{CONTAINER}: {command}: {error:#}"));
        }
    }
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("COPY") || line.contains("--from=") {
            continue;
        }
        let mut sources: Vec<&str> = words.collect();
        sources.pop();
        let missing = sources.iter().filter(|source| !root.join(source).exists());
        faults
            .extend(missing.map(|source| format!("{CONTAINER} copies {source}, which is missing")));
    }
    faults
}

/// Returns every `cargo xtask …` of a script, up to what ends a command.
fn xtask_commands(script: &str) -> Vec<String> {
    let lines = script.replace("\\\n", " ");
    let commands = lines.split(['\n', ';', '&', '|']).filter_map(|command| {
        let command = command.trim();
        let command = command.strip_prefix("RUN ").unwrap_or(command).trim();
        command
            .starts_with("cargo xtask")
            .then(|| command.to_owned())
    });
    commands.collect()
}

/// Checks that a command is one of ours, and the words of `dist`.
fn check_command(command: &str) -> Result<()> {
    let mut words = command.split_whitespace().skip(2);
    let name = words.next().context("it names no command")?;
    if !crate::COMMANDS.iter().any(|(known, _run)| *known == name) {
        bail!("there is no such command");
    }
    if name == "dist" {
        Request::parse(words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(job: &Value) -> String {
        let workflow = json!({"permissions": {"contents": "read"}, "jobs": {"build": job}});
        check_jobs(&workflow).unwrap().join("\n")
    }

    #[test]
    fn faults_of_the_workflow_are_named() {
        let steps = json!([{"uses": "a/b@v1"}, {"run": "cd x\ncargo xtask dist --manylinux 2_28 wheel && ls\n"}]);
        assert_eq!(faults(&json!({"steps": steps})), "");
        for (job, expected) in [
            (json!({"needs": ["crates"], "steps": []}), "needs crates"),
            (json!({"needs": "crates", "steps": []}), "needs crates"),
            (
                json!({"permissions": {"id-token": "write"}, "steps": []}),
                "on a tag only",
            ),
            (
                json!({"if": "github.ref_type == 'tag'", "steps": []}),
                "on a tag only",
            ),
            (json!({"steps": [{"uses": "a/b"}]}), "a/b has no version"),
            (
                json!({"steps": [{"run": "cargo xtask dits"}]}),
                "no such command",
            ),
            (
                json!({"steps": [{"run": "cargo xtask dist whel"}]}),
                "cannot make 'whel'",
            ),
        ] {
            let found = faults(&job);
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let writes = json!({"permissions": "write-all", "jobs": {}});
        assert!(check_jobs(&writes).is_err());
    }

    #[test]
    fn faults_of_the_container_file_are_named() {
        let root = shell::root();
        let text =
            "COPY README.md /\nCOPY --from=build /out /\nRUN cargo xtask dist tarball && true\n";
        assert_eq!(check_container(text, &root), Vec::<String>::new());
        let found = check_container("COPY README.md nothing /\nRUN cargo xtask dits\n", &root);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("no such command") && found[1].contains("nothing"));
        assert_eq!(check_container("RUN true\n", &root).len(), 1);
    }
}
