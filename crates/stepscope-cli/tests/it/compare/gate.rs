//! Gates and accepted runs: the exit code, several baselines, and the guide's workflow.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::{BASE, JITTER, SLOWER, adds_up, command, json, write_run};

#[test]
fn the_gate_decides_the_exit_code() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let new = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let short = write_run(&folder, "c.json", &SLOWER, &JITTER[..6]);
    let gate = folder.path().join("stepscope-gate.toml");
    let rules = "[[rule]]\nname = \"step, time\"\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n\
        [[rule]]\nname = \"kernels\"\nmeasure = \"count_per_step\"\nwhere = { name = \"aten::relu\" }\nmax_increase = \"0\"\n\
        [[rule]]\nname = \"products\"\nmeasure = \"device_ns\"\nwhere = { class = \"matmul\" }\nmax_increase = \"5%\"\n";
    std::fs::write(&gate, rules).unwrap();
    let judged = |paths: &[&Path], format: &str| {
        let words = [
            "compare",
            "--no-cache",
            "--gate",
            gate.to_str().unwrap(),
            "--format",
            format,
        ];
        command(&words, paths)
    };
    assert_eq!(judged(&[&base, &base], "table").0, 0);
    let (code, text) = judged(&[&base, &new], "junit");
    assert_eq!(code, 3, "{text}");
    assert_eq!(
        text.matches("<failure type=\"regression\"").count(),
        3,
        "{text}"
    );
    assert_eq!(
        judged(&[&base, &short], "table").0,
        3,
        "exact rules need no steps"
    );
    let (code, text) = judged(&[&base, &new], "github");
    assert!(
        code == 3 && text.contains("::error title=step%2C time::step_ns: "),
        "{text}"
    );
    let (_, text) = judged(&[&base, &new], "md");
    assert!(
        text.starts_with("<!-- stepscope-compare:") && text.contains("Gate: **fail**"),
        "{text}"
    );
    std::fs::write(
        &gate,
        rules
            .split("[[rule]]")
            .take(2)
            .collect::<Vec<_>>()
            .join("[[rule]]"),
    )
    .unwrap();
    assert_eq!(judged(&[&base, &short], "table").0, 4);
    std::fs::write(&gate, "[[rule]]\nmeasur = \"step_ns\"\n").unwrap();
    let (code, text) = judged(&[&base, &new], "table");
    assert!(
        code == 2 && text.contains("did you mean 'measure'?"),
        "{code} {text}"
    );
}

#[test]
fn accepted_runs_are_a_baseline_and_a_history() {
    let folder = TempDir::new().unwrap();
    let accepted = folder.path().join("accepted");
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    for _ in 0..4 {
        let words = [
            "baseline",
            "accept",
            "--no-cache",
            "--into",
            accepted.to_str().unwrap(),
            "--keep",
            "3",
        ];
        assert_eq!(command(&words, &[&base]).0, 0);
    }
    assert_eq!(std::fs::read_dir(&accepted).unwrap().count(), 3);
    // Other files of the folder are neither counted nor removed.
    std::fs::write(accepted.join("0-notes.json"), "{}").unwrap();
    let words = ["baseline", "accept", "--no-cache", "--keep", "3", "--into"];
    let words = [&words[..], &[accepted.to_str().unwrap()]].concat();
    let (code, text) = command(&words, &[&base]);
    let accepted_as = text
        .split_once(" as ")
        .unwrap()
        .1
        .split_once('\n')
        .unwrap()
        .0;
    assert!(code == 0 && Path::new(accepted_as).exists(), "{text}");
    assert_eq!(std::fs::read_dir(&accepted).unwrap().count(), 4);
    let new = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let found = json(
        &["--baseline", accepted.to_str().unwrap(), "--last", "2"],
        &[&new],
    );
    assert_eq!(
        (
            &found["verdict"],
            found["base"]["runs"].as_array().unwrap().len()
        ),
        (&"regressed".into(), 2)
    );
    adds_up(&found);
    let (code, text) = command(&["compare", "--history", accepted.to_str().unwrap()], &[]);
    assert!(
        code == 0 && text.contains("No change point in 3 runs"),
        "{text}"
    );
    let several = [
        "--base",
        base.to_str().unwrap(),
        "--base",
        base.to_str().unwrap(),
        "--base",
        base.to_str().unwrap(),
    ];
    let new_text = new.to_str().unwrap();
    let news = ["--new", new_text, "--new", new_text, "--new", new_text];
    let found = json(&[several, news].concat(), &[]);
    assert_eq!(
        (&found["sample"], &found["verdict"]),
        (&"run".into(), &"regressed".into())
    );
    adds_up(&found);
}

#[test]
fn a_gate_has_several_baselines() {
    let folder = TempDir::new().unwrap();
    let accepted = folder.path().join("accepted");
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let slower = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let words = [
        "baseline",
        "accept",
        "--no-cache",
        "--into",
        accepted.to_str().unwrap(),
    ];
    assert_eq!(command(&words, &[&slower]).0, 0);
    let release = folder.path().join("release.json");
    let words = [
        "compare",
        "--no-cache",
        "--save-summary",
        release.to_str().unwrap(),
    ];
    assert_eq!(command(&words, &[&base]).0, 0);
    let gate = folder.path().join("gate.toml");
    let rules = "[[baseline]]\nname = \"rolling\"\npath = \"accepted\"\n\
        [[baseline]]\nname = \"release\"\npath = \"release.json\"\nrules = [\"step\"]\n\
        [[rule]]\nname = \"step\"\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n\
        [[rule]]\nname = \"relu\"\nmeasure = \"count_per_step\"\nwhere = { name = \"aten::relu\" }\nmax_increase = \"0\"\n";
    std::fs::write(&gate, rules).unwrap();
    let judged = |paths: &[&Path]| {
        let words = [
            "compare",
            "--no-cache",
            "--gate",
            gate.to_str().unwrap(),
            "--format",
            "json",
        ];
        command(&words, paths)
    };
    let (code, text) = judged(&[&slower]);
    assert_eq!(code, 3, "slower than the release: {text}");
    let found: Value = serde_json::from_str(&text).unwrap();
    let outcomes: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|found| {
            let gate = &found["gate"];
            let rules = gate["rules"].as_array().unwrap().len();
            (
                found["base"]["label"].as_str(),
                gate["result"].as_str(),
                rules,
            )
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            (Some("rolling"), Some("pass"), 2),
            (Some("release"), Some("fail"), 1)
        ]
    );
    // A base of the command line stands in the place of the baselines.
    assert_eq!(judged(&[&slower, &slower]).0, 0);
    let words = [
        "compare",
        "--no-cache",
        "--gate",
        gate.to_str().unwrap(),
        "--explain",
    ];
    let (code, text) = command(&words, &[]);
    assert!(
        code == 0 && text.contains("Baseline release (release.json): the rules step."),
        "{text}"
    );
    let (code, text) = command(&words, &[&base, &slower]);
    assert!(
        code == 0
            && text.contains("These runs show a change of ")
            && text.contains("Fails when step_ns rises"),
        "{text}"
    );
    let (code, text) = command(&["compare", "--explain"], &[&base, &slower]);
    assert!(code == 2 && text.contains("--gate"), "{text}");
}

#[test]
fn a_failure_outweighs_what_cannot_be_decided() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let slower = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let short = write_run(&folder, "c.json", &BASE, &JITTER[..2]);
    let gate = folder.path().join("gate.toml");
    let rules =
        "[defaults]\nmin_steps = 5\n[[rule]]\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n";
    std::fs::write(&gate, rules).unwrap();
    let words = ["compare", "--no-cache", "--gate", gate.to_str().unwrap()];
    assert_eq!(command(&words, &[&base, &short]).0, 4);
    assert_eq!(command(&words, &[&base, &slower]).0, 3);
    assert_eq!(command(&words, &[&base, &slower, &short]).0, 3);
}

/// The blocks of shell of the guide's workflow, which a folder without accepted runs starts with.
#[test]
fn the_workflow_of_the_guide_runs() {
    let guide = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guide/compare.md"
    ))
    .unwrap();
    let block = |start: &str| {
        let (_, rest) = guide.split_once(start).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let folder = TempDir::new().unwrap();
    let inside = |name: &str| folder.path().join(name);
    std::fs::write(inside("stepscope-gate.toml"), block("```toml\n")).unwrap();
    std::fs::create_dir(inside("logs")).unwrap();
    let workflow = block("```yaml\n");
    let script: String = workflow
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("stepscope "))
        .fold(String::new(), |script, line| script + line + "\n");
    assert_eq!(script.lines().count(), 2, "{workflow}");
    let program = Path::new(env!("CARGO_BIN_EXE_stepscope")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.display());
    let run = |kernels: &[(&str, u32)]| {
        let steps: Vec<i32> = (0..12).map(|step| step % 5).collect();
        let traces = write_run(&folder, "run.json", kernels, &steps);
        std::fs::rename(traces, inside("logs/run.json")).unwrap();
        let done = std::process::Command::new("sh")
            .args(["-ec", &script])
            .current_dir(folder.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        (
            done.status.code(),
            text + &String::from_utf8_lossy(&done.stderr),
        )
    };
    // Nothing was accepted yet, so that the gate cannot decide; this run becomes the first accepted one.
    let (code, text) = run(&BASE);
    assert!(
        code == Some(0) && text.contains("no accepted run"),
        "{code:?} {text}"
    );
    assert_eq!(std::fs::read_dir(inside("accepted")).unwrap().count(), 1);
    let (code, text) = run(&BASE);
    assert_eq!(code, Some(0), "{text}");
    assert!(inside("gate.xml").exists() && inside("comment.md").exists());
    assert_eq!(std::fs::read_dir(inside("accepted")).unwrap().count(), 2);
    let (code, text) = run(&SLOWER);
    assert!(
        code == Some(1) && text.contains("::error"),
        "{code:?} {text}"
    );
    assert_eq!(std::fs::read_dir(inside("accepted")).unwrap().count(), 2);
}
