//! Other hosts of a job: whether they answer, and what their clocks show.

use std::time::Duration;

use stepscope_remote::{CaptureFailure, HostClock, read_clock};

use super::Check;
use crate::text;

/// Longest time for one host.
const LIMIT: Duration = Duration::from_secs(5);
/// Difference of clocks from which on steps of different hosts are put beside the wrong ones, nanoseconds.
const FAR_NS: i64 = 10_000_000;

pub(super) fn checks(addresses: &[String]) -> Vec<Check> {
    let each = addresses.iter();
    each.map(|address| check(address, read_clock(address, LIMIT)))
        .collect()
}

fn check(address: &str, read: Result<Option<HostClock>, CaptureFailure>) -> Check {
    let new = |state, found| Check::new("clock", "Clock of a host", state, found);
    let clock = match read {
        Ok(Some(clock)) => clock,
        Ok(None) => {
            let found = format!("{address} answers and does not send its time");
            return new(super::State::Absent, found).with_help(
                "start the server of stepscope in that program: stepscope.start_server(9012)",
            );
        }
        Err(failure) => {
            let found = format!("{address}: {}", failure.stage);
            return new(super::State::Problem, found).with_help(failure.message);
        }
    };
    let span = |ns: i64| text::duration(ns.unsigned_abs() as f64);
    let side = if clock.ahead_ns < 0 {
        "behind"
    } else {
        "ahead"
    };
    let found = format!(
        "{address} is {} {side} (error at most {})",
        span(clock.ahead_ns),
        span(clock.error_ns)
    );
    if clock.ahead_ns.saturating_abs() - clock.error_ns <= FAR_NS {
        return new(super::State::Ok, found);
    }
    new(super::State::Problem, found).with_help(
        "synchronise the clocks of both hosts with one source; 'chronyc tracking' shows it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    fn checked(ahead_ns: i64, error_ns: i64) -> Check {
        let version = "1".to_owned();
        let clock = HostClock {
            ahead_ns,
            error_ns,
            version,
        };
        check("b:1", Ok(Some(clock)))
    }

    #[test]
    fn clocks_that_differ_for_sure_are_a_problem() {
        let near = checked(-2_000_000, 500_000);
        assert_eq!(near.state, State::Ok);
        assert!(near.found.starts_with("b:1 is 2"), "{}", near.found);
        assert!(
            near.found.contains(" behind (error at most 500"),
            "{}",
            near.found
        );
        // The connection is too slow to say.
        assert_eq!(checked(30_000_000, 25_000_000).state, State::Ok);
        let far = checked(30_000_000, 1_000_000);
        assert_eq!(far.state, State::Problem);
        assert!(far.help.unwrap().contains("chronyc"));
        assert_eq!(check("b:1", Ok(None)).state, State::Absent);
    }
}
