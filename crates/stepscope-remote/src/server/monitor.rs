//! `Monitor`: a few figures over a short time, without a recording.
//!
//! Step times come from the recorder's step watch, the host's load from the CPU time of this
//! process. A CPU program has no device figures: unknown figures are NaN in the response, and the
//! text says so.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use stepscope::{StepTimes, StepWatch, flight_status};
use stepscope_model::clock::unix_now_ns;
use tonic::Status;

use super::{State, os, request};
use crate::proto::profiler_service_monitor_result::ResponseType;
use crate::proto::{MonitorRequest, MonitorResponse, ProfilerServiceMonitorResult};

/// Default duration, milliseconds.
const DEFAULT_MS: u64 = 1_000;

/// Collected figures.
#[derive(Clone, Copy, Debug)]
struct MonitorFigures {
    wall: Duration,
    cpu: Duration,
    cores: usize,
    steps: StepTimes,
}

/// Collects figures for the requested duration, or until the server stops.
pub(super) async fn monitor(
    state: &State,
    request: &MonitorRequest,
) -> Result<MonitorResponse, Status> {
    let duration = match request.duration_ms {
        0 => Duration::from_millis(DEFAULT_MS),
        given => request::duration(given, "duration_ms", state.bounds.max_duration)?,
    };
    if !(0..=2).contains(&request.monitoring_level) {
        return Err(Status::invalid_argument(format!(
            "monitoring_level is 1 (load) or 2 (also step times), not {}",
            request.monitoring_level
        )));
    }
    let watch = StepWatch::start();
    let (begun, cpu) = (Instant::now(), os::process_cpu_time());
    let mut stopping = state.stopping.clone();
    tokio::select! {
        () = tokio::time::sleep(duration) => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    let seen = MonitorFigures {
        wall: begun.elapsed(),
        cpu: os::process_cpu_time().saturating_sub(cpu),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        steps: watch.times(),
    };
    drop(watch);
    let mut data = String::new();
    if request.timestamp {
        // The last three parts of `YYYY_MM_DD_HH_MM_SS`.
        let now = stepscope::session::session_name_at(unix_now_ns());
        let clock: Vec<&str> = now.split('_').skip(3).collect();
        let _ = writeln!(data, "Timestamp: {}", clock.join(":"));
    }
    let with_steps = request.monitoring_level == 2;
    describe(&mut data, &seen, with_steps);
    let _ = writeln!(data, "Recording: {}", recording(state));
    Ok(MonitorResponse {
        data,
        monitor_result: Some(figures(&seen, with_steps)),
    })
}

fn describe(data: &mut String, seen: &MonitorFigures, with_steps: bool) {
    let _ = writeln!(
        data,
        "Host busy: {:.1}% of {} cores, {:.2} s of CPU in {:.2} s",
        busy_percent(seen),
        seen.cores,
        seen.cpu.as_secs_f64(),
        seen.wall.as_secs_f64()
    );
    let steps = &seen.steps;
    if with_steps && steps.count > 0 {
        let _ = writeln!(
            data,
            "Step time: {} (avg), {} (min), {} (max), {} steps",
            shown(steps.mean),
            shown(steps.min),
            shown(steps.max),
            steps.count
        );
    } else if with_steps {
        data.push_str("Step time: no step ended\n");
    }
    data.push_str("Device: none reported by the program\n");
}

fn recording(state: &State) -> String {
    if let Some(present) = state.slot.present() {
        return format!("a capture, {present}");
    }
    match flight_status() {
        Some(flight) if !flight.paused => {
            format!("the last {:.1} s are kept", flight.covered.as_secs_f64())
        }
        _ if stepscope::is_recording() => "the program records itself".to_owned(),
        _ => "nothing".to_owned(),
    }
}

fn busy_percent(seen: &MonitorFigures) -> f64 {
    let there = seen.wall.as_secs_f64() * seen.cores as f64;
    if there <= 0.0 {
        return 0.0;
    }
    100.0 * seen.cpu.as_secs_f64() / there
}

fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1_000.0;
    if ms < 1_000.0 {
        format!("{ms:.3} ms")
    } else {
        format!("{:.3} s", ms / 1_000.0)
    }
}

fn figures(seen: &MonitorFigures, with_steps: bool) -> ProfilerServiceMonitorResult {
    let known = with_steps && seen.steps.count > 0;
    let ms = |time: Duration| {
        if known {
            time.as_secs_f64() * 1_000.0
        } else {
            f64::NAN
        }
    };
    let kind = if known {
        ResponseType::UtilIdleStep
    } else {
        ResponseType::EmptyResult
    };
    ProfilerServiceMonitorResult {
        response_type: kind.into(),
        device_idle_time_percent: f64::NAN,
        matrix_unit_utilization_percent: f64::NAN,
        step_time_ms_avg: ms(seen.steps.mean),
        step_time_ms_min: ms(seen.steps.min),
        step_time_ms_max: ms(seen.steps.max),
        infeed_percent_avg: f64::NAN,
        infeed_percent_min: f64::NAN,
        infeed_percent_max: f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_nobody_knows_are_not_numbers() {
        let seen = MonitorFigures {
            wall: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            cores: 4,
            steps: StepTimes::default(),
        };
        let none = figures(&seen, true);
        assert_eq!(none.response_type(), ResponseType::EmptyResult);
        assert!(none.step_time_ms_avg.is_nan() && none.device_idle_time_percent.is_nan());
        let mut text = String::new();
        describe(&mut text, &seen, true);
        assert!(text.starts_with("Host busy: 12.5% of 4 cores, 1.00 s of CPU in 2.00 s\n"));
        assert!(text.contains("no step ended"));
    }

    #[test]
    fn times_are_shown_with_their_unit() {
        assert_eq!(shown(Duration::from_micros(1_500)), "1.500 ms");
        assert_eq!(shown(Duration::from_millis(2_500)), "2.500 s");
    }
}
