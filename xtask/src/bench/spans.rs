//! Cost of one span, for stepscope and other recorders.

use anyhow::Result;

use super::results::Results;
use crate::part::Outcome;
use crate::shell;

pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let target = shell::target_dir().join("bench");
    let mut build = shell::cargo();
    build
        .args([
            "build",
            "--release",
            "--manifest-path",
            "benches/rust/Cargo.toml",
        ])
        .env("CARGO_TARGET_DIR", &target);
    shell::run(&mut build)?;
    // The kernel stops writers of mapped pages while it writes the files of the build.
    shell::sync()?;
    let text = shell::output(&mut shell::program(target.join("release/stepscope-bench")))?;
    let mut rows = Vec::new();
    for line in text.lines() {
        let case: serde_json::Value = serde_json::from_str(line)?;
        let number = |key: &str| case[key].as_f64();
        let floor = number("floor_ns").unwrap_or(f64::NAN);
        let floor_off = number("floor_off_ns").unwrap_or(f64::NAN);
        let cell = |value: Option<f64>| value.map_or("–".to_owned(), |ns| format!("{ns:.1}"));
        let ratio =
            |value: Option<f64>| value.map_or("–".to_owned(), |ns| format!("{:.2}x", ns / floor));
        let off = number("off_ns");
        rows.push(vec![
            case["case"].as_str().unwrap_or("?").to_owned(),
            cell(off),
            off.map_or("–".to_owned(), |ns| format!("{:+.2}", ns - floor_off)),
            cell(number("on_ns")),
            format!("{floor:.1}"),
            ratio(number("on_ns")),
        ]);
    }
    results.table(
        "One span (enter and exit)",
        "CPU time of the recording thread, median of nine rounds, each case in a process of its own. The floor, measured in the same \
         process, reads the time-stamp counter twice and stores 24 bytes in the thread's own ring.",
        &["case", "off, ns", "off less floor, ns", "on, ns", "floor, ns", "on / floor"],
        &rows,
    );
    Ok(Outcome::Ok)
}
