//! `stepscope convert`: writes a trace in another format.

use std::io::Write;
use std::sync::Arc;

use stepscope_engine::{ConvertOptions, OutputFormat, Overlay, convert, is_url, shown_path};
use stepscope_model::ReadContext;

use crate::args;
use crate::error::CliError;
use crate::progress::Progress;
use crate::staged::Staged;
use crate::text::{self, clean};

/// Runs the command.
pub fn run(asked: &args::Convert, out: &mut dyn Write) -> Result<(), CliError> {
    let shown = shown_path(&asked.output);
    if OutputFormat::from_name(&asked.output).is_none() {
        return Err(CliError::usage(format!(
            "cannot write {shown}: the extension names no format\nhelp: use .xplane.pb, .json, .json.gz, .pftrace, .csv or .parquet"
        )));
    }
    let context = Arc::new(ReadContext::new(asked.reading.limits()));
    let progress = Progress::start(&context, stepscope_engine::expected_bytes(&asked.input));
    let bucket = asked.output.parent().filter(|_| is_url(&asked.output));
    let mut staged = bucket.map(Staged::new).transpose()?;
    let output = match (&staged, asked.output.file_name()) {
        (Some(staged), Some(name)) => staged.folder().join(name),
        _ => asked.output.clone(),
    };
    let written = convert(
        &asked.input,
        &output,
        &context,
        ConvertOptions {
            use_cache: !asked.reading.no_cache,
            may_be_large: asked.large,
            overlay: asked
                .overlay
                .map(|args::OverlayArg::CriticalPath| Overlay::CriticalPath),
        },
    )?;
    drop(progress);
    if let Some(staged) = &mut staged {
        staged.upload("")?;
    }
    let mut counts = vec![format!("{} slices", text::count(written.slices))];
    for (count, what) in [
        (written.instants, "instants"),
        (written.samples, "counter samples"),
        (written.flows, "flows"),
    ] {
        if count > 0 {
            counts.push(format!("{} {what}", text::count(count)));
        }
    }
    writeln!(
        out,
        "{}: {} ({})",
        clean(&shown),
        counts.join(", "),
        text::bytes(written.bytes)
    )?;
    for note in &written.notes {
        writeln!(out, "note: {}", clean(note))?;
    }
    Ok(())
}
