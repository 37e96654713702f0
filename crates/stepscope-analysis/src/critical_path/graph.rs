//! The graph of segments and dependencies, independent of the trace that it was built from.
//!
//! Queues hold segments that do not overlap, in order of time. A segment's start depends on the segment before it
//! on its queue and on further [`Dependency`]s; the end of a waiting segment depends on what it waits for. All
//! columns are arrays with one entry per segment or per edge; indexes are `u32`.

use stepscope_store::pages;

/// No segment, no dependency.
pub(crate) const NONE: u32 = u32::MAX;
/// The binding dependency of a segment is the one before it on its queue.
pub(crate) const PREVIOUS: u32 = u32::MAX - 1;

/// What a segment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// A host thread.
    Host,
    /// Computation on a device.
    Compute,
    /// Communication on a device, or a collective of a host.
    Communication,
    /// A copy or a memset on a device.
    Copy,
}

/// Confidence of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeConfidence {
    /// The file has its identifiers.
    Recorded,
    /// The queue guarantees it.
    Ordered,
    /// A rule found it.
    Inferred,
}

impl EdgeConfidence {
    /// All, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Recorded, Self::Ordered, Self::Inferred];

    /// Returns the word used in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Ordered => "ordered",
            Self::Inferred => "inferred",
        }
    }
}

/// Kind of the lag between the two ends of a dependency. The order decides between dependencies that bind alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LagKind {
    /// From the end of a segment to the start of the next one on the same host thread.
    ThreadGap,
    /// From the end of a segment to the start of the next one on the same device queue.
    KernelGap,
    /// The same, or the launch latency of a queue's first work, where it is too long for a queue with work: the file
    /// does not show what the device waits for.
    Idle,
    /// From the end of the work that an event marks to the start of the work that waits for the event.
    EventWait,
    /// From the end of a launching call to the start of the work.
    LaunchLatency,
    /// From the end of a segment to the start of the one that it hands over to, on another thread.
    Handover,
    /// From the end of the awaited segment to the end of the wait.
    SyncReturn,
}

impl LagKind {
    /// All, in their order.
    pub const ALL: [Self; 7] = [
        Self::ThreadGap,
        Self::KernelGap,
        Self::Idle,
        Self::EventWait,
        Self::LaunchLatency,
        Self::Handover,
        Self::SyncReturn,
    ];

    /// Returns the word used in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ThreadGap => "thread_gap",
            Self::KernelGap => "kernel_gap",
            Self::Idle => "idle",
            Self::EventWait => "event_wait",
            Self::LaunchLatency => "launch_latency",
            Self::Handover => "handover",
            Self::SyncReturn => "sync_return",
        }
    }
}

/// Longest gap, and longest launch latency of a queue's first work, that need no other cause, picoseconds.
pub(super) const LONGEST_GAP: i64 = 50_000_000;

/// One end of an edge at a segment: a point in time in it, usually its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The segment that the edge arrives at: at its start, or at its end for what a wait waits for.
    pub to: u32,
    /// Kind of its lag.
    pub kind: LagKind,
    /// The segment that the edge leaves.
    pub from: u32,
    /// Point in that segment at which the edge leaves, picoseconds; its end unless the work began earlier.
    pub anchor: i64,
    /// See [`EdgeConfidence`].
    pub confidence: EdgeConfidence,
}

/// A thread, or a queue of a device: a range of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSegments {
    /// First segment.
    pub first: u32,
    /// One after the last segment.
    pub end: u32,
    /// Number of the device whose launch floor applies; `NONE` for a thread.
    pub device: u32,
    /// Whether each segment begins after the end of the one before it; transfers in flight overlap.
    pub is_ordered: bool,
}

/// Segments, dependencies, and which of them bind.
#[derive(Clone, Debug, Default)]
pub struct DependencyGraph {
    /// Start of each segment, picoseconds.
    pub begin: Vec<i64>,
    /// End of each segment, picoseconds; after the start.
    pub end: Vec<i64>,
    /// Kind of each segment.
    pub kind: Vec<SegmentKind>,
    /// Queue of each segment.
    pub queue: Vec<u32>,
    /// All queues.
    pub queues: Vec<QueueSegments>,
    /// Collective of each segment, or `NONE`; empty without collectives of several participants.
    pub group: Vec<u32>,
    /// Participants of each collective.
    pub groups: Vec<Vec<u32>>,
    /// Edges to starts, in order of their target.
    pub dependencies: Edges,
    /// Edges to ends of waits, in order of their target.
    pub syncs: Edges,
    /// Binding dependency of each segment's start: a number of `dependencies`, `PREVIOUS` or `NONE`.
    pub binding: Vec<u32>,
    /// Edge that ends each wait: a number of `syncs`, or `NONE`.
    pub wait: Vec<u32>,
    /// Smallest launch latency of each device, picoseconds.
    pub floor: Vec<i64>,
    /// An order of all starts and ends in which each comes after those that it needs: ranges of starts (twice the
    /// number of a segment) and ends (one more) of one queue each.
    pub(super) schedule: Vec<(u32, u32)>,
    /// Number of edges that contradict the times in the file.
    pub contradictions: u64,
}

/// Edges grouped by their target.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    /// All edges, in order of target, kind and source.
    pub list: Vec<Dependency>,
    /// First edge of each segment, and the number of edges.
    first: Vec<u32>,
}

impl Edges {
    pub(super) fn new(mut list: Vec<Dependency>, segments: usize) -> Self {
        // Mostly runs in this order.
        list.sort();
        list.dedup();
        if list.is_empty() {
            return Self::default();
        }
        let mut first = vec![0_u32; segments + 1];
        for edge in &list {
            first[edge.to as usize + 1] += 1;
        }
        for segment in 0..segments {
            first[segment + 1] += first[segment];
        }
        Self { list, first }
    }

    /// Returns the numbers of the edges that arrive at a segment.
    #[inline]
    pub fn at(&self, segment: usize) -> std::ops::Range<usize> {
        match (self.first.get(segment), self.first.get(segment + 1)) {
            (Some(first), Some(end)) => *first as usize..*end as usize,
            _ => 0..0,
        }
    }
}

/// The edges that bind.
#[derive(Default)]
pub(super) struct Bindings {
    /// See [`DependencyGraph::binding`].
    pub(super) binding: Vec<u32>,
    /// See [`DependencyGraph::wait`].
    pub(super) wait: Vec<u32>,
    /// See [`DependencyGraph::floor`].
    pub(super) floor: Vec<i64>,
}

impl DependencyGraph {
    /// Returns the number of segments.
    pub fn len(&self) -> usize {
        self.begin.len()
    }

    /// Returns whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.begin.is_empty()
    }

    /// Returns the length of a segment, picoseconds.
    #[inline]
    pub fn length(&self, segment: usize) -> i64 {
        self.end[segment].saturating_sub(self.begin[segment])
    }

    /// Returns the segment before this one on its queue.
    #[inline]
    pub fn previous(&self, segment: usize) -> Option<usize> {
        let queue = &self.queues[self.queue[segment] as usize];
        (queue.is_ordered && segment > queue.first as usize).then(|| segment - 1)
    }

    /// Returns the collective of a segment.
    #[inline]
    pub fn group(&self, segment: usize) -> Option<&[u32]> {
        let group = *self.group.get(segment)?;
        self.groups.get(group as usize).map(Vec::as_slice)
    }

    /// Returns whether the queue of a segment belongs to a device.
    #[inline]
    pub fn on_device(&self, segment: usize) -> bool {
        self.queues[self.queue[segment] as usize].device != NONE
    }

    /// Returns the kind of the lag after the previous segment of a queue.
    #[inline]
    pub fn gap_kind(&self, segment: usize) -> LagKind {
        let gap = |previous: usize| self.begin[segment].saturating_sub(self.end[previous]);
        if !self.on_device(segment) {
            LagKind::ThreadGap
        } else if self.previous(segment).map_or(0, gap) > LONGEST_GAP {
            LagKind::Idle
        } else {
            LagKind::KernelGap
        }
    }

    /// Returns the kind of the lag of the dependency that binds a segment's start.
    #[inline]
    pub(super) fn lag_kind(&self, segment: usize, bound: &Dependency) -> LagKind {
        let lag = self.begin[segment].saturating_sub(bound.anchor);
        if bound.kind == LagKind::LaunchLatency
            && lag > LONGEST_GAP
            && self.previous(segment).is_none()
        {
            // The queue had work before, which is not recorded, or waits for something else.
            LagKind::Idle
        } else {
            bound.kind
        }
    }

    /// Returns the participant of a collective that began last.
    pub fn last_arriver(&self, group: &[u32]) -> usize {
        let latest = |a: &usize, b: &usize| {
            let by_start = self.begin[*a].cmp(&self.begin[*b]);
            by_start.then(b.cmp(a))
        };
        let participants = group.iter().map(|segment| *segment as usize);
        participants.max_by(latest).unwrap_or(0)
    }

    /// Returns when the last participant of a segment's collective began.
    pub fn last_arrival(&self, segment: usize) -> Option<i64> {
        let group = self.group(segment)?;
        Some(self.begin[self.last_arriver(group)])
    }

    /// Returns the segment of a queue that contains a point in time, or the last one that begins before it; the
    /// point is clamped to the segment. `None` if no segment begins before the point.
    pub fn locate(&self, queue: usize, at: i64) -> Option<(u32, i64)> {
        let range = self.queues.get(queue)?;
        let begin = self.begin.get(range.first as usize..range.end as usize)?;
        let before = begin.partition_point(|begin| *begin < at);
        self.segment_at(range, before, at)
    }

    /// Returns the same as [`locate`](Self::locate). `near` stores where the last search ended, which shortens the
    /// next one.
    pub(super) fn locate_near(
        &self,
        queue: usize,
        at: i64,
        near: &mut usize,
    ) -> Option<(u32, i64)> {
        let (before, _) = self.begun_before(queue, at, near)?;
        self.segment_at(self.queues.get(queue)?, before, at)
    }

    /// Returns the number of segments of a queue that begin before a point in time, and the starts of all of them.
    pub(super) fn begun_before(
        &self,
        queue: usize,
        at: i64,
        near: &mut usize,
    ) -> Option<(usize, &[i64])> {
        let range = self.queues.get(queue)?;
        let begin = self.begin.get(range.first as usize..range.end as usize)?;
        *near = galloping_search(begin, at, *near);
        Some((*near, begin))
    }

    /// Returns the segment of a queue at a point in time, given the number of segments that begin before it.
    fn segment_at(&self, queue: &QueueSegments, before: usize, at: i64) -> Option<(u32, i64)> {
        let begin = self.begin.get(queue.first as usize..queue.end as usize)?;
        if before == 0 {
            // The first segment may begin exactly then.
            return (begin.first() == Some(&at)).then_some((queue.first, at));
        }
        let segment = queue.first as usize + before - 1;
        let next = (before < begin.len()).then(|| begin[before]);
        if self.end[segment] < at && next == Some(at) {
            return Some((index(segment + 1), at));
        }
        Some((index(segment), at.min(self.end[segment])))
    }

    /// Removes the edges that contradict the times of their segments, and returns their number.
    pub(super) fn retain_consistent(
        &self,
        dependencies: &mut Vec<Dependency>,
        syncs: &mut Vec<Dependency>,
    ) -> u64 {
        let before = dependencies.len() + syncs.len();
        // An anchor outside of its segment has no time in a replay.
        let leaves = |edge: &Dependency| {
            let from = edge.from as usize;
            edge.from != edge.to && (self.begin[from]..=self.end[from]).contains(&edge.anchor)
        };
        dependencies.retain(|edge| leaves(edge) && edge.anchor <= self.begin[edge.to as usize]);
        syncs.retain(|edge| leaves(edge) && edge.anchor <= self.end[edge.to as usize]);
        (before - dependencies.len() - syncs.len()) as u64
    }

    /// Removes the edges to these starts (`false`) and ends (`true`): they close a cycle of equal times.
    pub(super) fn remove(&mut self, forced: &[(u32, bool)]) {
        let segments = self.len();
        for ends in [false, true] {
            let mut targets: Vec<u32> = forced
                .iter()
                .filter(|(_, end)| *end == ends)
                .map(|(segment, _)| *segment)
                .collect();
            targets.sort_unstable();
            if ends {
                for segment in &targets {
                    self.leave_group(*segment as usize);
                }
            }
            let edges = if ends {
                &mut self.syncs
            } else {
                &mut self.dependencies
            };
            let mut list = std::mem::take(&mut edges.list);
            let before = list.len();
            list.retain(|edge| targets.binary_search(&edge.to).is_err());
            self.contradictions += (before - list.len()) as u64;
            *edges = Edges::new(list, segments);
        }
    }

    /// Removes all edges and collectives: what the file records contradicts itself.
    pub(super) fn remove_all(&mut self) {
        let edges = self.dependencies.list.len() + self.syncs.list.len() + self.groups.len();
        self.contradictions += edges as u64;
        self.dependencies = Edges::default();
        self.syncs = Edges::default();
        self.groups.clear();
        self.group.clear();
    }

    fn leave_group(&mut self, segment: usize) {
        let Some(group) = self.group.get(segment).copied() else {
            return;
        };
        if let Some(members) = self.groups.get_mut(group as usize) {
            self.contradictions += 1;
            for member in std::mem::take(members) {
                self.group[member as usize] = NONE;
            }
        }
    }

    /// Removes the collectives of which a participant ends before the last one begins.
    pub(super) fn dissolve_contradictory_groups(&mut self) {
        for group in 0..self.groups.len() {
            let members = &self.groups[group];
            let release = members
                .iter()
                .map(|member| self.begin[*member as usize])
                .max();
            let first_end = members
                .iter()
                .map(|member| self.end[*member as usize])
                .min();
            if let Some(member) = members.first().copied()
                && (first_end < release || members.len() < 2)
            {
                self.leave_group(member as usize);
            }
        }
    }

    /// Finds the binding dependencies, and the launch floor of each device.
    pub(super) fn bindings(&self) -> Bindings {
        let devices = self.queues.iter().filter(|queue| queue.device != NONE);
        let devices = devices
            .map(|queue| queue.device as usize + 1)
            .max()
            .unwrap_or(0);
        let mut found = Bindings {
            floor: vec![0; devices],
            binding: self.bound_to_previous(),
            wait: pages::filled(NONE, self.len()),
        };
        self.bind_targets(&mut found);
        let mut floor = vec![i64::MAX; devices];
        for (number, edge) in self.dependencies.list.iter().enumerate() {
            let to = edge.to as usize;
            let device = self.queues[self.queue[to] as usize].device as usize;
            if edge.kind == LagKind::LaunchLatency
                && found.binding[to] == index(number)
                && let Some(floor) = floor.get_mut(device)
            {
                *floor = (*floor).min(self.begin[to].saturating_sub(edge.anchor));
            }
        }
        if floor.iter().any(|floor| *floor != i64::MAX && *floor > 0) {
            found.floor = floor
                .iter()
                .map(|floor| if *floor == i64::MAX { 0 } else { *floor })
                .collect();
            self.bind_targets(&mut found);
        }
        for (number, edge) in self.syncs.list.iter().enumerate() {
            let to = edge.to as usize;
            if edge.anchor <= self.begin[to] {
                continue;
            }
            let known = self.syncs.list.get(found.wait[to] as usize);
            if known.is_none_or(|known| known.anchor < edge.anchor) {
                found.wait[to] = index(number);
            }
        }
        found
    }

    /// Binds each segment to the one before it on its queue.
    fn bound_to_previous(&self) -> Vec<u32> {
        let mut binding = pages::filled(NONE, self.len());
        for queue in self.queues.iter().filter(|queue| queue.is_ordered) {
            let range = (queue.first as usize + 1).min(queue.end as usize)..queue.end as usize;
            binding[range].fill(PREVIOUS);
        }
        binding
    }

    /// Finds the binding dependency of each segment that has further ones than its queue's order.
    fn bind_targets(&self, found: &mut Bindings) {
        let edges = &self.dependencies.list;
        let mut first = 0;
        while let Some(segment) = edges.get(first).map(|edge| edge.to as usize) {
            let mut best: Option<(i64, LagKind)> = None;
            let mut bound = NONE;
            if let Some(previous) = self.previous(segment) {
                best = Some((self.end[previous], self.gap_kind(segment)));
                bound = PREVIOUS;
            }
            while let Some(edge) = edges.get(first).filter(|edge| edge.to as usize == segment) {
                let floor = self.floor_in(&found.floor, segment, edge.kind);
                let ready = edge.anchor.saturating_add(floor);
                if best.is_none_or(|(time, kind)| ready > time || ready == time && edge.kind < kind)
                {
                    best = Some((ready, edge.kind));
                    bound = index(first);
                }
                first += 1;
            }
            found.binding[segment] = bound;
        }
    }

    /// Returns the smallest lag of a kind at a segment.
    #[inline]
    pub fn floor_of(&self, segment: usize, kind: LagKind) -> i64 {
        self.floor_in(&self.floor, segment, kind)
    }

    #[inline]
    fn floor_in(&self, floor: &[i64], segment: usize, kind: LagKind) -> i64 {
        if kind != LagKind::LaunchLatency {
            return 0;
        }
        let device = self.queues[self.queue[segment] as usize].device;
        floor.get(device as usize).copied().unwrap_or(0)
    }

    /// Returns where the binding dependency of a segment's start leaves: source, anchor, kind, confidence.
    pub fn bound(&self, segment: usize) -> Option<Dependency> {
        match self.binding[segment] {
            NONE => None,
            PREVIOUS => {
                let previous = self.previous(segment)?;
                Some(Dependency {
                    to: index(segment),
                    kind: self.gap_kind(segment),
                    from: index(previous),
                    anchor: self.end[previous],
                    confidence: EdgeConfidence::Ordered,
                })
            }
            number => self.dependencies.list.get(number as usize).copied(),
        }
    }

    /// Returns the edge that ends a wait.
    pub fn bound_wait(&self, segment: usize) -> Option<Dependency> {
        self.syncs.list.get(self.wait[segment] as usize).copied()
    }
}

/// Converts a position in a column; columns have fewer than 2^32 - 2 entries, as a trace has events.
#[inline]
pub(crate) fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(NONE)
}

/// Returns the number of times before `at` in an ascending list, by a search from a position.
pub(super) fn galloping_search(times: &[i64], at: i64, near: usize) -> usize {
    let near = near.min(times.len());
    let (mut low, mut high) = (near, near);
    let mut step = 1;
    if near > 0 && times[near - 1] >= at {
        while low > 0 && times[low - 1] >= at {
            high = low - 1;
            low = low.saturating_sub(step);
            step *= 2;
        }
    } else {
        while high < times.len() && times[high] < at {
            low = high + 1;
            high = high.saturating_add(step).min(times.len());
            step *= 2;
        }
    }
    low + times[low..high].partition_point(|time| *time < at)
}

#[cfg(test)]
mod tests {
    use super::galloping_search;

    #[test]
    fn galloping_search_finds_the_same_from_everywhere() {
        let times = [1, 3, 3, 3, 7, 9, 12, 40, 41, 41, 90];
        for at in 0..100 {
            let expected = times.partition_point(|time| *time < at);
            for near in 0..=times.len() + 2 {
                assert_eq!(galloping_search(&times, at, near), expected, "{at} {near}");
            }
        }
        assert_eq!(galloping_search(&[], 5, 3), 0);
    }
}
