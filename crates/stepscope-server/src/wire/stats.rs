//! Search results and statistics, as they travel.

use serde::{Deserialize, Serialize};

use super::event::Brief;
use crate::ns::{Ns, parse_ns};

/// Answer of `/search`.
#[derive(Serialize)]
pub(crate) struct SearchAnswer {
    /// All matches.
    pub(crate) total: u64,
    /// Distinct names among those that could match.
    pub(crate) names: usize,
    /// Number of the first hit of this page.
    pub(crate) first: u64,
    /// Where the next page begins.
    pub(crate) cursor: Option<String>,
    /// Matches by track, most first.
    pub(crate) by_track: Vec<(u32, u64)>,
    /// This page.
    pub(crate) hits: Vec<Brief>,
    /// Matches by bin.
    pub(crate) bins: Vec<u64>,
}

/// Answer of `/events`.
#[derive(Serialize)]
pub(crate) struct EventsAnswer {
    /// All events of the area.
    pub(crate) total: u64,
    /// Number of the first event of this page.
    pub(crate) first: u64,
    /// This page.
    pub(crate) events: Vec<Brief>,
}

/// Answer of `/names`.
#[derive(Serialize)]
pub(crate) struct NamesAnswer {
    /// All matches.
    pub(crate) total: u64,
    /// Distinct names among them.
    pub(crate) names: usize,
    /// The names, most frequent first.
    pub(crate) rows: Vec<NameRow>,
}

/// One name of events.
#[derive(Serialize)]
pub(crate) struct NameRow {
    /// The name.
    pub(crate) name: String,
    /// The short name of a C++ function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) short_name: Option<String>,
    /// Events.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) first: u32,
}

/// Body of `/aggregate`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AggregateBody {
    /// Begin of the range: a number, or the digits of a large one.
    pub(crate) t0: Option<NsIn>,
    /// End of the range.
    pub(crate) t1: Option<NsIn>,
    /// Track ids.
    pub(crate) tracks: Option<Vec<u32>>,
    /// Text that names contain.
    pub(crate) filter: Option<String>,
    /// Regular expression that names match.
    pub(crate) regex: Option<String>,
    /// Class numbers.
    pub(crate) kinds: Option<Vec<u8>>,
    /// What slices are put together by.
    pub(crate) by: Option<Vec<String>>,
    /// `column:asc` or `column:desc`.
    pub(crate) sort: Option<String>,
    /// Most rows.
    pub(crate) limit: Option<usize>,
}

/// Nanoseconds in a body.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum NsIn {
    /// As a number.
    Number(serde_json::Number),
    /// As text.
    Text(String),
}

impl NsIn {
    /// Picoseconds; `None` when it is no number.
    pub(crate) fn ps(&self) -> Option<i64> {
        match self {
            Self::Number(number) => parse_ns(&number.to_string()),
            Self::Text(text) => parse_ns(text),
        }
    }
}

/// Answer of `/aggregate`.
#[derive(Serialize)]
pub(crate) struct AggregateAnswer {
    /// Begin of the range.
    pub(crate) t0: Ns,
    /// End of the range.
    pub(crate) t1: Ns,
    /// Number of groups.
    pub(crate) total: usize,
    /// Sums over all groups.
    pub(crate) matched: Matched,
    /// The groups.
    pub(crate) rows: Vec<AggregateRow>,
    /// Busy and idle time.
    pub(crate) per_track: Vec<TrackTimeRow>,
}

/// Sums over all groups.
#[derive(Serialize)]
pub(crate) struct Matched {
    /// Slices.
    pub(crate) count: u64,
    /// Sum of their times.
    pub(crate) total_ns: Ns,
    /// Sum of their self times.
    pub(crate) self_ns: Ns,
}

/// One group.
#[derive(Serialize)]
pub(crate) struct AggregateRow {
    /// One text for each of `by`.
    pub(crate) key: Vec<String>,
    /// What people call a C++ function, when grouped by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) short_name: Option<String>,
    /// The track, when grouped by it.
    pub(crate) track: Option<u32>,
    /// Class of its longest slice.
    pub(crate) kind: u8,
    /// Slices.
    pub(crate) count: u64,
    /// Sum of their times.
    pub(crate) total_ns: Ns,
    /// Sum of their self times.
    pub(crate) self_ns: Ns,
    /// Mean time.
    pub(crate) mean_ns: Ns,
    /// Shortest.
    pub(crate) min_ns: Ns,
    /// Longest.
    pub(crate) max_ns: Ns,
    /// Total through the length of the range.
    pub(crate) share: f64,
    /// The longest.
    pub(crate) example: u32,
}

/// One track's time in the range.
#[derive(Serialize)]
pub(crate) struct TrackTimeRow {
    /// The track.
    pub(crate) track: u32,
    /// Union of its slices.
    pub(crate) busy_ns: Ns,
    /// The rest.
    pub(crate) idle_ns: Ns,
}

/// Answer of `/histogram`.
#[derive(Serialize)]
pub(crate) struct HistogramAnswer {
    /// The name.
    pub(crate) name: String,
    /// Slices.
    pub(crate) count: usize,
    /// Sum.
    pub(crate) total_ns: Ns,
    /// Shortest.
    pub(crate) min_ns: Option<Ns>,
    /// Median.
    pub(crate) median_ns: Option<Ns>,
    /// 90 of 100 are not longer.
    pub(crate) p90_ns: Option<Ns>,
    /// 99 of 100 are not longer.
    pub(crate) p99_ns: Option<Ns>,
    /// Longest.
    pub(crate) max_ns: Option<Ns>,
    /// `linear` or `log`.
    pub(crate) scale: &'static str,
    /// Bounds of the bins.
    pub(crate) edges: Vec<Ns>,
    /// Slices by bin.
    pub(crate) counts: Vec<u64>,
    /// Sums by bin.
    pub(crate) totals: Vec<Ns>,
}

/// Recorded or derived steps.
#[derive(Serialize)]
pub(crate) struct StepsAnswer {
    /// Number of steps.
    pub(crate) total: usize,
    /// The whole list is one page.
    pub(crate) cursor: Option<String>,
    /// Where they come from.
    pub(crate) source: Option<&'static str>,
    /// The steps, in time order.
    pub(crate) steps: Vec<StepRow>,
    /// Over all of them.
    pub(crate) stats: Option<StepStats>,
}

/// One step.
#[derive(Serialize)]
pub(crate) struct StepRow {
    /// The program's number.
    pub(crate) n: i64,
    /// Its marker.
    pub(crate) id: u32,
    /// Name of the marker.
    pub(crate) name: String,
    /// Track of the marker.
    pub(crate) track: u32,
    /// Host of the marker.
    pub(crate) host: Option<String>,
    /// Rank of the marker.
    pub(crate) rank: Option<u32>,
    /// Process of the marker, in a file of several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<i64>,
    /// When it began.
    pub(crate) start_ns: Ns,
    /// How long it took.
    pub(crate) duration_ns: Ns,
}

/// Over the finished steps of all ranks.
#[derive(Serialize)]
pub(crate) struct StepStats {
    /// Steps of the rank that has the most.
    pub(crate) count: u64,
    /// Ranks that have steps.
    pub(crate) ranks: usize,
    /// Mean.
    pub(crate) mean_ns: f64,
    /// Shortest.
    pub(crate) min_ns: f64,
    /// Median.
    pub(crate) p50_ns: f64,
    /// 90 of 100 are not longer; not of few steps.
    pub(crate) p90_ns: Option<f64>,
    /// Longest.
    pub(crate) max_ns: f64,
}

/// Links around an event.
#[derive(Serialize)]
pub(crate) struct FlowsAnswer {
    /// The links.
    pub(crate) edges: Vec<FlowRow>,
    /// Their events.
    pub(crate) events: Vec<Brief>,
    /// Whether there are more.
    pub(crate) truncated: bool,
}

/// One link.
#[derive(Serialize)]
pub(crate) struct FlowRow {
    /// Where it starts.
    pub(crate) from: u32,
    /// Where it ends.
    pub(crate) to: u32,
    /// What it is called in the file.
    pub(crate) kind: String,
    /// Distance from the event asked for; negative upstream.
    pub(crate) hop: i32,
}

/// Notes of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Notes {
    /// All of them.
    pub(crate) notes: Vec<Note>,
}

/// One note.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Note {
    /// Made by the client.
    pub(crate) id: String,
    /// Begin of what it is about.
    pub(crate) t0: serde_json::Number,
    /// End of what it is about.
    pub(crate) t1: serde_json::Number,
    /// What it says.
    pub(crate) text: String,
    /// Track keys.
    #[serde(default)]
    pub(crate) tracks: Vec<String>,
}
