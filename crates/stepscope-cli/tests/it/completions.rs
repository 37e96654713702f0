//! Completion scripts and man pages: they contain every command and option.

use std::process::Command;

use crate::cli::{folder_with, refusal, run, text};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

fn script(shell: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = run(home.path(), &["completions", shell]);
    assert!(output.status.success(), "{shell}: {output:?}");
    text(&output.stdout)
}

/// The commands and, of each, the long options that users see.
fn definition() -> Vec<(String, Vec<String>)> {
    let root = stepscope_cli::args::definition();
    let visible = root.get_subcommands().filter(|one| !one.is_hide_set());
    let commands = visible.map(|command| {
        let visible = command.get_arguments().filter(|one| !one.is_hide_set());
        let options = visible.filter_map(|one| Some(one.get_long()?.to_owned()));
        (command.get_name().to_owned(), options.collect())
    });
    commands.collect()
}

#[test]
fn scripts_of_all_shells_contain_every_command_and_option() {
    for shell in SHELLS {
        let script = script(shell);
        assert!(!script.contains("man-pages"), "{shell}");
        for (command, options) in definition() {
            assert!(script.contains(&command), "{shell}: {command}");
            for option in options {
                assert!(script.contains(&option), "{shell}: {command} --{option}");
            }
        }
    }
}

#[test]
fn unknown_shell_is_refused_with_the_known_ones() {
    let home = tempfile::tempdir().unwrap();
    let (code, line) = refusal(&run(home.path(), &["completions", "tcsh"]));
    assert_eq!(code, 2);
    assert!(SHELLS.iter().all(|shell| line.contains(shell)), "{line}");
}

#[test]
fn bash_completes_commands_options_values_and_report_kinds() {
    let folder = folder_with(&[("stepscope.bash", &script("bash"))]);
    let complete = |words: &[&str]| {
        let output = Command::new("bash")
            .args(["--norc", "--noprofile", "-c"])
            .arg(
                "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                _stepscope stepscope \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
                printf '%s\\n' \"${COMPREPLY[@]}\"",
            )
            .arg(folder.path().join("stepscope.bash"))
            .args(words)
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "", "{words:?}");
        let found = text(&output.stdout);
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["stepscope", "re"]), ["recover", "report"]);
    assert_eq!(
        complete(&["stepscope", "report", "logs", "critical"]),
        ["critical-path"]
    );
    assert_eq!(complete(&["stepscope", "report", "--format", "c"]), ["csv"]);
    assert_eq!(complete(&["stepscope", "run", "--keep"]), ["--keep-last"]);
    assert_eq!(complete(&["stepscope", "completions", "f"]), ["fish"]);
}

#[test]
fn every_command_has_a_man_page_with_its_options() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("share/man1");
    let output = run(home.path(), &["man-pages", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = |name: &str| {
        let page = std::fs::read_to_string(folder.join(name)).unwrap();
        // Dashes are escaped: a page distinguishes them from hyphens.
        page.replace("\\-", "-")
    };
    let root = page("stepscope.1");
    let definition = definition();
    let written = std::fs::read_dir(&folder).unwrap().count();
    // `baseline` has commands of its own.
    assert!(written > definition.len(), "{written}");
    for (command, options) in definition {
        assert!(
            root.contains(&format!("stepscope-{command}(1)")),
            "{command}"
        );
        let page = page(&format!("stepscope-{command}.1"));
        for option in options {
            assert!(
                page.contains(&format!("--{option}")),
                "{command} --{option}"
            );
        }
    }
}
