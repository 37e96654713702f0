//! The selector of what-if scenarios that stands for a row of the path.

use stepscope_analysis::critical_path::CriticalPath;
use stepscope_analysis::critical_path::groups::{PathGroup, PathGrouping, PathKey};
use stepscope_analysis::critical_path::path::PathKind;
use stepscope_analysis::critical_path::selection::module_name;
use stepscope_analysis::critical_path::spec::parse;
use stepscope_model::TrackKind;

/// Returns the selector that selects the time of a row. `None` where no selector does: time without a cause or a
/// slice, host threads, and names that a scenario cannot hold.
pub(super) fn selector(
    path: &CriticalPath<'_>,
    row: &PathGroup,
    by: PathGrouping,
) -> Option<String> {
    let text = match row.key {
        PathKey::Name(name) if by == PathGrouping::Module => {
            format!("module:{}", module_name(path.trace.name(name))?)
        }
        PathKey::Name(name) => {
            let track = path.trace.track_of(row.event?)?;
            let track = path.trace.tracks().get(track.index())?;
            let place = if track.kind == TrackKind::Thread {
                "host"
            } else {
                "kernel"
            };
            format!("{place}:{}", path.trace.name(name))
        }
        PathKey::Kind(PathKind::Unknown) | PathKey::NothingRecorded | PathKey::None => return None,
        PathKey::Kind(kind) => kind.as_str().to_owned(),
        PathKey::Class(class) => format!("class:{}", class.short_name()),
        PathKey::Rank(rank) => format!("rank:{rank}"),
        PathKey::Step(number) => format!("ranks@step:{number}"),
        PathKey::Queue(queue) => stream(path, queue)?,
    };
    // A name may read as a scope or a change.
    let found = parse(&format!("{text}=x1")).ok()?;
    let [spec] = found.specs.as_slice() else {
        return None;
    };
    let scopes = match row.key {
        PathKey::Queue(_) => 2,
        PathKey::Step(_) => 1,
        _ => 0,
    };
    (spec.scopes.len() == scopes).then_some(text)
}

/// Returns the selector of a stream; `None` for threads, and for streams of which several devices of the rank have
/// one.
fn stream(path: &CriticalPath<'_>, queue: u32) -> Option<String> {
    let queues = &path.segments.queues;
    let tracks = path.trace.tracks();
    let own = queues.get(queue as usize)?;
    let number = |track: stepscope_model::TrackId| tracks.get(track.index())?.stream;
    let stream = number(own.track()).filter(|_| own.device.is_some())?;
    let same = queues.iter().filter(|other| {
        other.file == own.file && other.device.is_some() && number(other.track()) == Some(stream)
    });
    let rank = path.rank_of(own.file);
    (same.count() == 1).then(|| format!("ranks@rank:{rank}@stream:{stream}"))
}
