//! `stepscope peaks`: measures the peak rates of this machine's processor.

mod kernel;
mod measure;

use std::io::Write;
use std::num::NonZero;
use std::time::Instant;

use serde::Serialize;
use stepscope_engine::measured_peaks::{MeasuredPeaks, PeakStore, this_processor};

use crate::args::{self, PeakDevice};
use crate::error::CliError;
use kernel::{Bf16, Kernel};

/// Answer of `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    processor: &'a str,
    #[serde(flatten)]
    peaks: MeasuredPeaks,
    f64_instructions: &'static str,
    f32_instructions: &'static str,
    bf16: &'static str,
    duration_ns: u64,
}

/// Runs the command.
pub fn run(asked: &args::Peaks, out: &mut dyn Write) -> Result<(), CliError> {
    if asked.device == PeakDevice::Gpu {
        return Err(CliError::failed(
            "cannot measure the peaks of a GPU: they come from the trace file and from a table of data sheets\nhelp: 'stepscope report RUN roofline' shows them; --peak-flops and --peak-bandwidth give others",
        ));
    }
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let began = Instant::now();
    let mut clock = || began.elapsed();
    let kernel = Kernel::detect();
    let bf16 = Bf16::detect();
    let f64_rate = measure::products::<f64>(kernel, processors, &mut clock);
    let f32_rate = measure::products::<f32>(kernel, processors, &mut clock);
    let bf16_rate = match bf16 {
        Bf16::Instructions => Some(measure::bf16_products(processors, &mut clock)),
        Bf16::Matrix | Bf16::Missing => None,
    };
    let copy_rate = measure::copy(processors, &mut clock);
    let peaks = MeasuredPeaks {
        processors: processors as u64,
        f64_flops_per_second: Some(measure::whole(f64_rate)),
        f32_flops_per_second: measure::whole(f32_rate),
        bf16_flops_per_second: bf16_rate.map(measure::whole),
        copy_bytes_per_second: measure::whole(copy_rate),
    };
    let took = began.elapsed();
    let processor = this_processor();
    let store = PeakStore::user();
    let stored = store.store(&processor, peaks);
    if asked.json {
        let answer = Answer {
            processor: &processor,
            peaks,
            f64_instructions: kernel.as_str(),
            f32_instructions: kernel.as_str(),
            bf16: bf16.as_str(),
            duration_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        };
        let text = serde_json::to_string_pretty(&answer)
            .map_err(|error| CliError::failed(format!("cannot print the peaks: {error}")))?;
        writeln!(out, "{text}")?;
    } else {
        let cores = if processors == 1 { "core" } else { "cores" };
        writeln!(out, "Processor: {processor}, {processors} {cores}")?;
        writeln!(
            out,
            "Products in f64:  {:>9.1} GFLOP/s ({})",
            f64_rate / 1e9,
            kernel.as_str()
        )?;
        writeln!(
            out,
            "Products in f32:  {:>9.1} GFLOP/s ({})",
            f32_rate / 1e9,
            kernel.as_str()
        )?;
        match bf16_rate {
            Some(rate) => writeln!(
                out,
                "Products in bf16: {:>9.1} GFLOP/s ({})",
                rate / 1e9,
                bf16.as_str()
            )?,
            None => writeln!(out, "Products in bf16: not measured: {}", bf16.as_str())?,
        }
        writeln!(
            out,
            "Copy in memory:   {:>9.1} GB/s, read and written",
            copy_rate / 1e9
        )?;
        writeln!(out, "Measured in {:.1} s.", took.as_secs_f64())?;
        if let (Ok(()), Some(path)) = (&stored, store.path()) {
            writeln!(
                out,
                "Stored in {}: 'stepscope report RUN roofline' uses it for runs of this processor, and with --measured-peaks for others.",
                path.display()
            )?;
        }
        writeln!(
            out,
            "The peaks of GPUs and TPUs come from the trace file and a table: docs/reference/peaks.md."
        )?;
    }
    stored.map_err(|error| {
        CliError::failed(format!(
            "cannot store the measured peaks: {error}\nhelp: give them to a report with --peak-flops and --peak-bandwidth"
        ))
    })
}
