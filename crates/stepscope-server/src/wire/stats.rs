//! Serialized search results and statistics.

use serde::{Deserialize, Serialize};

use super::event::EventSummary;
use crate::ns::{Ns, parse_ns};

/// Response of `/search`.
#[derive(Serialize)]
pub(crate) struct SearchAnswer {
    /// Number of matches.
    pub(crate) total: u64,
    /// Number of distinct names among those that could match.
    pub(crate) names: usize,
    /// Index of the first hit of this page.
    pub(crate) first: u64,
    /// Start of the next page.
    pub(crate) cursor: Option<String>,
    /// Number of matches by track, most first.
    pub(crate) by_track: Vec<(u32, u64)>,
    /// The hits of this page.
    pub(crate) hits: Vec<EventSummary>,
    /// Number of matches by bin.
    pub(crate) bins: Vec<u64>,
}

/// Response of `/events`.
#[derive(Serialize)]
pub(crate) struct EventsAnswer {
    /// Number of events in the area.
    pub(crate) total: u64,
    /// Index of the first event of this page.
    pub(crate) first: u64,
    /// The events of this page.
    pub(crate) events: Vec<EventSummary>,
}

/// Response of `/names`.
#[derive(Serialize)]
pub(crate) struct NamesAnswer {
    /// Number of matches.
    pub(crate) total: u64,
    /// Number of distinct names.
    pub(crate) names: usize,
    /// The names, most frequent first.
    pub(crate) rows: Vec<NameRow>,
}

/// A name of events.
#[derive(Serialize)]
pub(crate) struct NameRow {
    /// The name.
    pub(crate) name: String,
    /// Short name of a C++ function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) short_name: Option<String>,
    /// Number of events.
    pub(crate) count: u64,
    /// Id of the first event.
    pub(crate) first: u32,
}

/// Body of `/aggregate`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AggregateBody {
    /// Start of the range: a number, or the digits of a large one.
    pub(crate) t0: Option<NsIn>,
    /// End of the range.
    pub(crate) t1: Option<NsIn>,
    /// Track ids.
    pub(crate) tracks: Option<Vec<u32>>,
    /// Substring of the names.
    pub(crate) filter: Option<String>,
    /// Regular expression of the names.
    pub(crate) regex: Option<String>,
    /// Kind numbers.
    pub(crate) kinds: Option<Vec<u8>>,
    /// Grouping keys of the slices.
    pub(crate) by: Option<Vec<String>>,
    /// `column:asc` or `column:desc`.
    pub(crate) sort: Option<String>,
    /// Maximum number of rows.
    pub(crate) limit: Option<usize>,
}

/// Nanoseconds in a request body.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum NsIn {
    /// As a number.
    Number(serde_json::Number),
    /// As text.
    Text(String),
}

impl NsIn {
    /// Converts to picoseconds; `None` if it is not a number.
    pub(crate) fn ps(&self) -> Option<i64> {
        match self {
            Self::Number(number) => parse_ns(&number.to_string()),
            Self::Text(text) => parse_ns(text),
        }
    }
}

/// Response of `/aggregate`.
#[derive(Serialize)]
pub(crate) struct AggregateAnswer {
    /// Start of the range.
    pub(crate) t0: Ns,
    /// End of the range.
    pub(crate) t1: Ns,
    /// Number of groups.
    pub(crate) total: usize,
    /// Sums over all groups.
    pub(crate) matched: Matched,
    /// The groups.
    pub(crate) rows: Vec<AggregateRow>,
    /// Busy and idle time by track.
    pub(crate) per_track: Vec<TrackTimeRow>,
}

/// Sums over all groups.
#[derive(Serialize)]
pub(crate) struct Matched {
    /// Number of slices.
    pub(crate) count: u64,
    /// Sum of their durations.
    pub(crate) total_ns: Ns,
    /// Sum of their self times.
    pub(crate) self_ns: Ns,
}

/// One group.
#[derive(Serialize)]
pub(crate) struct AggregateRow {
    /// One value per key of `by`.
    pub(crate) key: Vec<String>,
    /// Short name of a C++ function, if grouped by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) short_name: Option<String>,
    /// Track id, if grouped by track.
    pub(crate) track: Option<u32>,
    /// Kind of its longest slice.
    pub(crate) kind: u8,
    /// Number of slices.
    pub(crate) count: u64,
    /// Sum of their durations.
    pub(crate) total_ns: Ns,
    /// Sum of their self times.
    pub(crate) self_ns: Ns,
    /// Mean duration.
    pub(crate) mean_ns: Ns,
    /// Shortest duration.
    pub(crate) min_ns: Ns,
    /// Longest duration.
    pub(crate) max_ns: Ns,
    /// Total duration divided by the length of the range.
    pub(crate) share: f64,
    /// Id of the longest slice.
    pub(crate) example: u32,
}

/// One track's time in the range.
#[derive(Serialize)]
pub(crate) struct TrackTimeRow {
    /// The track.
    pub(crate) track: u32,
    /// Union of its slices.
    pub(crate) busy_ns: Ns,
    /// The rest of the range.
    pub(crate) idle_ns: Ns,
}

/// Response of `/histogram`.
#[derive(Serialize)]
pub(crate) struct HistogramAnswer {
    /// The name.
    pub(crate) name: String,
    /// Number of slices.
    pub(crate) count: usize,
    /// Sum of their durations.
    pub(crate) total_ns: Ns,
    /// Shortest duration.
    pub(crate) min_ns: Option<Ns>,
    /// Median duration.
    pub(crate) median_ns: Option<Ns>,
    /// 90th percentile of the durations.
    pub(crate) p90_ns: Option<Ns>,
    /// 99th percentile of the durations.
    pub(crate) p99_ns: Option<Ns>,
    /// Longest duration.
    pub(crate) max_ns: Option<Ns>,
    /// `linear` or `log`.
    pub(crate) scale: &'static str,
    /// Bounds of the bins.
    pub(crate) edges: Vec<Ns>,
    /// Number of slices by bin.
    pub(crate) counts: Vec<u64>,
    /// Sum of durations by bin.
    pub(crate) totals: Vec<Ns>,
}

/// Recorded or derived steps.
#[derive(Serialize)]
pub(crate) struct StepsAnswer {
    /// Number of steps.
    pub(crate) total: usize,
    /// Always `null`: the list is one page.
    pub(crate) cursor: Option<String>,
    /// Source of the steps.
    pub(crate) source: Option<&'static str>,
    /// The steps, in time order.
    pub(crate) steps: Vec<StepRow>,
    /// Statistics of all steps.
    pub(crate) stats: Option<StepStats>,
}

/// One step.
#[derive(Serialize)]
pub(crate) struct StepRow {
    /// Step number.
    pub(crate) n: i64,
    /// Event id of its marker.
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
    /// Start.
    pub(crate) start_ns: Ns,
    /// Duration.
    pub(crate) duration_ns: Ns,
}

/// Statistics of the finished steps of all ranks.
#[derive(Serialize)]
pub(crate) struct StepStats {
    /// Number of steps of the rank that has the most.
    pub(crate) count: u64,
    /// Number of ranks that have steps.
    pub(crate) ranks: usize,
    /// Mean.
    pub(crate) mean_ns: f64,
    /// Shortest.
    pub(crate) min_ns: f64,
    /// Median.
    pub(crate) p50_ns: f64,
    /// 90th percentile; absent if there are few steps.
    pub(crate) p90_ns: Option<f64>,
    /// Longest.
    pub(crate) max_ns: f64,
}

/// Flows around an event.
#[derive(Serialize)]
pub(crate) struct FlowsAnswer {
    /// The flows.
    pub(crate) edges: Vec<FlowRow>,
    /// Their events.
    pub(crate) events: Vec<EventSummary>,
    /// Whether flows were omitted.
    pub(crate) truncated: bool,
}

/// One flow.
#[derive(Serialize)]
pub(crate) struct FlowRow {
    /// Event id of its start.
    pub(crate) from: u32,
    /// Event id of its end.
    pub(crate) to: u32,
    /// Its name in the file.
    pub(crate) kind: String,
    /// Distance from the requested event; negative upstream.
    pub(crate) hop: i32,
}

/// Notes of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Notes {
    /// The notes.
    pub(crate) notes: Vec<Note>,
}

/// One note.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Note {
    /// Id, chosen by the client.
    pub(crate) id: String,
    /// Start of its range.
    pub(crate) t0: serde_json::Number,
    /// End of its range.
    pub(crate) t1: serde_json::Number,
    /// Its text.
    pub(crate) text: String,
    /// Track keys.
    #[serde(default)]
    pub(crate) tracks: Vec<String>,
}
