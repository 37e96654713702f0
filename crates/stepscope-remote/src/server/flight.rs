//! Continuous recording: the protocol's continuous calls, implemented by the flight recorder.
//!
//! The program starts it with `keep_last`, or a client starts it. A snapshot contains the last
//! seconds; the recording continues.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stepscope::{
    ExportLimits, FlightOptions, HostTracerLevel, SessionError, flight_status, start_flight,
    stop_flight, write_last,
};
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};

use super::advanced::cut;
use super::capture::{encode, on_helper, refusal};
use super::request::{self, CaptureSpec};
use super::response::deliver;
use super::{ServerError, ServerOptions, State, directories};
use crate::headers::LAST_MS;
use crate::proto::{ProfileRequest, ProfileResponse};

/// Longer than any flight recorder keeps: requests everything.
const ALL: Duration = Duration::from_hours(24 * 365);

/// State of the flight recorder that this server started.
#[derive(Debug, Default)]
pub(super) struct Flight {
    begun: Mutex<Option<StartedFlight>>,
}

#[derive(Clone, Debug)]
struct StartedFlight {
    by: StartedBy,
    /// The client's request, if a client started it.
    wanted: Option<CaptureSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartedBy {
    Program,
    Client,
}

/// Returns the request that corresponds to the server's options.
fn wanted_from_start(
    options: &ServerOptions,
    host: &str,
) -> Result<Option<FlightOptions>, ServerError> {
    let flight = match (&options.flight, options.keep_last) {
        (Some(_), Some(_)) => return Err(ServerError::FlightTwice),
        (None, None) => return Ok(None),
        (Some(flight), None) => flight.clone(),
        (None, Some(keep_last)) => FlightOptions {
            keep_last,
            ..FlightOptions::default()
        },
    };
    Ok(Some(with_facts(flight, options, host)))
}

fn with_facts(mut flight: FlightOptions, options: &ServerOptions, host: &str) -> FlightOptions {
    flight.host_name.get_or_insert_with(|| host.to_owned());
    flight.facts.extend(options.facts.iter().cloned());
    flight
}

impl Flight {
    /// Starts the flight recorder if the options request it.
    pub(super) fn new(options: &ServerOptions, host: &str) -> Result<Self, ServerError> {
        let flight = Self::default();
        if let Some(wanted) = wanted_from_start(options, host)? {
            start_flight(&wanted).map_err(|cause| ServerError::Flight { cause })?;
            *flight.lock() = Some(StartedFlight {
                by: StartedBy::Program,
                wanted: None,
            });
        }
        Ok(flight)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<StartedFlight>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the flight recorder if this server started it.
    pub(super) fn end(&self) {
        if self.lock().take().is_some() {
            let _ = stop_flight();
        }
    }
}

/// `StartContinuousProfiling`.
pub(super) async fn begin(state: &Arc<State>, request: &ProfileRequest) -> Result<(), Status> {
    let wanted = request::options(request, &state.bounds)?;
    // XProf's client sends no level for this call, independent of its options; level 0 is not
    // useful here.
    let level = match wanted.level {
        HostTracerLevel::Off => HostTracerLevel::default(),
        level => level,
    };
    let options = FlightOptions {
        host_tracer_level: level,
        ..FlightOptions::default()
    };
    let host = wanted.override_host.clone();
    let host = host.unwrap_or_else(|| state.bounds.host.clone());
    let options = with_facts(options, &state.options, &host);
    let state = Arc::clone(state);
    on_helper(move || {
        let mut begun = state.flight.lock();
        start_flight(&options).map_err(|error| flight_refusal(&error))?;
        *begun = Some(StartedFlight {
            by: StartedBy::Client,
            wanted: Some(wanted),
        });
        Ok(())
    })
    .await?
}

/// `StopContinuousProfiling`.
pub(super) async fn end(state: &Arc<State>) -> Result<(), Status> {
    let state = Arc::clone(state);
    on_helper(move || {
        let mut begun = state.flight.lock();
        let by_client = begun
            .as_ref()
            .is_some_and(|begun| begun.by == StartedBy::Client);
        if !by_client && flight_status().is_some() {
            return Err(Status::failed_precondition(
                "cannot stop the flight recorder: the program itself started it",
            ));
        }
        stop_flight().map_err(|error| flight_refusal(&error))?;
        *begun = None;
        Ok(())
    })
    .await?
}

/// `GetSnapshot`: with a session, writes into the directory that was set at the start, if it is
/// allowed; without one, returns `xspace` in the response.
pub(super) async fn snapshot(
    state: &Arc<State>,
    session: &str,
    metadata: &MetadataMap,
) -> Result<Response<ProfileResponse>, Status> {
    let last = last(metadata)?.unwrap_or(ALL);
    if !session.is_empty() && !directories::is_plain(session) {
        return Err(Status::invalid_argument(format!(
            "cannot use {:?} as snapshot_session_id: it must be one plain file name",
            cut(session)
        )));
    }
    let begun = state.flight.lock().clone().and_then(|begun| begun.wanted);
    let mut wanted = match begun {
        Some(wanted) => wanted,
        None => request::options(&ProfileRequest::default(), &state.bounds)?,
    };
    session.clone_into(&mut wanted.session);
    wanted.emit_xspace = session.is_empty();
    let cut = ExportLimits {
        max_events: wanted.max_events,
        ..ExportLimits::default()
    };
    let (recorded, _) = encode(state, 0, move |out| write_last(last, out, &cut))
        .await
        .map_err(|failure| failure.status(flight_refusal))?;
    deliver(state, wanted, recorded).await
}

/// Returns the duration that the client requests.
fn last(metadata: &MetadataMap) -> Result<Option<Duration>, Status> {
    let Some(value) = metadata.get(LAST_MS) else {
        return Ok(None);
    };
    let ms: Option<u64> = value.to_str().ok().and_then(|text| text.parse().ok());
    match ms {
        Some(ms @ 1..) => Ok(Some(Duration::from_millis(ms).min(ALL))),
        _ => Err(Status::invalid_argument(format!(
            "cannot use {LAST_MS}: it must be a number of milliseconds, at least 1"
        ))),
    }
}

/// Converts a flight recorder's error to a gRPC status.
fn flight_refusal(error: &SessionError) -> Status {
    match error {
        SessionError::FlightRunning => Status::already_exists(
            "cannot start the flight recorder: it is already running; request a snapshot",
        ),
        SessionError::NoFlight => Status::not_found(
            "cannot use the flight recorder: it is not running; start it in the program (start_flight, or in Rust the server's keep_last), or call StartContinuousProfiling",
        ),
        SessionError::FlightPaused => Status::failed_precondition(error.to_string()),
        SessionError::BadFlight { .. } => Status::invalid_argument(error.to_string()),
        error => refusal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_given_in_milliseconds() {
        let given = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(LAST_MS, text.parse().unwrap());
            last(&metadata).map_err(|status| status.code())
        };
        assert_eq!(given("2500"), Ok(Some(Duration::from_millis(2_500))));
        assert_eq!(given(&u64::MAX.to_string()), Ok(Some(ALL)));
        for wrong in ["0", "-1", "1.5", "ten", ""] {
            assert_eq!(given(wrong), Err(tonic::Code::InvalidArgument), "{wrong}");
        }
        assert_eq!(last(&MetadataMap::new()).unwrap(), None);
    }

    #[test]
    fn both_ways_to_ask_are_one_too_many() {
        let mut options = ServerOptions {
            keep_last: Some(Duration::from_secs(5)),
            facts: vec![("rank".to_owned(), "3".to_owned())],
            ..ServerOptions::default()
        };
        let flight = wanted_from_start(&options, "machine").unwrap().unwrap();
        assert_eq!(flight.keep_last, Duration::from_secs(5));
        assert_eq!(flight.host_name.as_deref(), Some("machine"));
        assert_eq!(flight.facts, [("rank".to_owned(), "3".to_owned())]);
        options.flight = Some(FlightOptions::default());
        assert!(matches!(
            wanted_from_start(&options, "machine"),
            Err(ServerError::FlightTwice)
        ));
        assert!(
            wanted_from_start(&ServerOptions::default(), "machine")
                .unwrap()
                .is_none()
        );
    }
}
