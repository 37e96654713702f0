//! Parameters of a request: parsing, defaults and limits.

use std::ops::Range;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use stepscope_model::{Dur, Time, TrackId};

use crate::ns::parse_ns;
use crate::problem::Problem;
use crate::view::RunView;

/// Maximum number of bins in one request.
pub(crate) const MAX_BINS: u32 = 8_192;
/// Default number of bins.
pub(crate) const DEFAULT_BINS: u32 = 800;
/// Maximum number of tracks in one request.
pub(crate) const MAX_TRACKS: usize = 1_024;

/// Query of a request. Unknown parameters are ignored; the first of several equal names is used,
/// except by [`texts`](Self::texts).
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Query::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map(|Query(pairs)| Self(pairs))
            .map_err(|error| Problem::bad_request("query", error.body_text()))
    }
}

impl Params {
    /// Returns the text of a parameter; an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns the texts of a parameter that may be repeated; empty ones count as absent.
    pub(crate) fn all_texts(&self, name: &str) -> Vec<String> {
        let named = self
            .0
            .iter()
            .filter(|(known, value)| known == name && !value.is_empty());
        named.map(|(_, value)| value.clone()).collect()
    }

    /// Returns the text of a required parameter.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Problem> {
        self.text(name)
            .ok_or_else(|| Problem::bad_request(name, format!("{name} is missing")))
    }

    /// Parses an integer within bounds.
    pub(crate) fn number<T: FromStr + PartialOrd + std::fmt::Display + Copy>(
        &self,
        name: &str,
        default: T,
        bounds: std::ops::RangeInclusive<T>,
    ) -> Result<T, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        text.parse()
            .ok()
            .filter(|value| bounds.contains(value))
            .ok_or_else(|| {
                let (low, high) = (bounds.start(), bounds.end());
                Problem::bad_request(name, format!("{name} is a number from {low} to {high}"))
            })
    }

    /// Parses an integer; `None` if absent.
    pub(crate) fn optional_number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let parse = |text: &str| {
            let not_a_number = || Problem::bad_request(name, format!("{name} is a whole number"));
            text.parse().ok().ok_or_else(not_a_number)
        };
        self.text(name).map(parse).transpose()
    }

    /// Parses one of a few words; the first is the default.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, Problem> {
        let word = self.text(name);
        choices
            .iter()
            .find(|(known, _)| word.is_none_or(|word| word == *known))
            .map(|&(_, value)| value)
            .ok_or_else(|| {
                let words: Vec<&str> = choices.iter().map(|&(word, _)| word).collect();
                Problem::bad_request(name, format!("{name} is one of {}", words.join(", ")))
            })
    }

    /// Parses nanoseconds; returns picoseconds.
    pub(crate) fn ns(&self, name: &str) -> Result<Option<i64>, Problem> {
        self.text(name)
            .map(|text| {
                parse_ns(text).ok_or_else(|| {
                    Problem::bad_request(name, format!("{name} is a number of nanoseconds"))
                })
            })
            .transpose()
    }

    /// Parses a duration.
    pub(crate) fn dur(&self, name: &str) -> Result<Option<Dur>, Problem> {
        Ok(self.ns(name)?.map(Dur::from_ps))
    }

    /// Parses `t0` and `t1`; the default is the whole run.
    pub(crate) fn window(&self, view: &RunView) -> Result<Range<Time>, Problem> {
        window(view, self.ns("t0")?, self.ns("t1")?)
    }

    /// Parses the number of bins.
    pub(crate) fn bins(&self) -> Result<u32, Problem> {
        self.number("bins", DEFAULT_BINS, 1..=MAX_BINS)
    }

    /// Parses track ids, in the order of the request; `None` if absent.
    pub(crate) fn tracks(&self, view: &RunView) -> Result<Option<Vec<TrackId>>, Problem> {
        let Some(text) = self.text("tracks") else {
            return Ok(None);
        };
        let mut out = Vec::new();
        for part in text.split(',') {
            let id = part
                .trim()
                .parse()
                .ok()
                .map(TrackId)
                .filter(|id| id.index() < view.run.trace.tracks().len())
                .ok_or_else(|| Problem::no_such_track("tracks", part))?;
            out.push(id);
            if out.len() > MAX_TRACKS {
                let detail = format!("at most {MAX_TRACKS} tracks in one request");
                return Err(Problem::bad_request("tracks", detail));
            }
        }
        Ok(Some(out))
    }
}

/// Returns the time range between two points on the run's clock; the default is the whole run.
pub(crate) fn window(
    view: &RunView,
    t0: Option<i64>,
    t1: Option<i64>,
) -> Result<Range<Time>, Problem> {
    let start = t0.map_or(view.span().start, |ps| view.clock().at(ps));
    let end = t1.map_or(view.span().end, |ps| view.clock().at(ps));
    if start > end {
        return Err(Problem::bad_request("t1", "t1 lies before t0"));
    }
    // The range of a run with a single timestamp must not be empty.
    Ok(start..end.max(start.saturating_add(Dur::from_ps(1))))
}
