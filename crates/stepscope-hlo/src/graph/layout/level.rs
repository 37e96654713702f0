//! A layered drawing of nodes without groups.
//!
//! A line leaves its rank and enters the next one straight down, so that it crosses no taller node of a rank. A line
//! that leaves the group, or comes from outside, ends in a port at the border, which has its own room in each rank.
//!
//! Edges that would close a circle are turned round; ranks are longest paths, with each source moved next to
//! its users; the order within a rank follows the mean position of the neighbours, and the best of a few sweeps
//! is kept; positions within a rank are the closest ones to the neighbours that keep order and distance.

use super::Line;

/// Space between two nodes of a rank.
const NODE_GAP: f64 = 24.0;
/// Space between two ranks.
const RANK_GAP: f64 = 36.0;
/// Width of a line that passes a rank.
const LINE_WIDTH: f64 = 8.0;
/// Sweeps over all ranks for the order, and for the positions.
const ORDER_SWEEPS: usize = 8;
const POSITION_SWEEPS: usize = 8;

/// Width and height of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The drawing of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    /// Top left of each node.
    pub(super) origins: Vec<(f64, f64)>,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Line of each edge.
    lines: Vec<Line>,
    /// Lines from nodes to the lower border, by node, ascending.
    exits: Vec<(usize, Line)>,
    /// Lines from the upper border to nodes, by node, ascending.
    entries: Vec<(usize, Line)>,
}

/// The nodes of a group whose values leave it, and those that take values from outside; ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Ports {
    pub(super) exits: Vec<usize>,
    pub(super) entries: Vec<usize>,
}

/// A node, or a line that passes a rank.
struct Slot {
    width: f64,
    height: f64,
    rank: usize,
    above: Vec<usize>,
    below: Vec<usize>,
}

impl Level {
    /// Lays out nodes and edges; both ends of an edge are positions of nodes, and no edge occurs twice.
    pub(super) fn new(sizes: &[Size], edges: &[(usize, usize)], ports: &Ports) -> Self {
        let nodes = sizes.len();
        let mut is_turned = turned(nodes, edges);
        let downward: Vec<(usize, usize)> = edges
            .iter()
            .zip(&is_turned)
            .map(|(&(from, to), turned)| if *turned { (to, from) } else { (from, to) })
            .collect();
        let (sizes, downward, ranks) = with_ports(sizes, downward, ports);
        is_turned.resize(downward.len(), false);
        let (slots, chains) = slots(&sizes, &downward, &ranks);
        let mut order = first_order(&slots);
        reorder(&slots, &mut order);
        let centres = place(&slots, &order);
        let heights: Vec<f64> = order
            .iter()
            .map(|rank| {
                let heights = rank.iter().map(|slot| slots[*slot].height);
                heights.fold(0.0, f64::max)
            })
            .collect();
        let mut tops = Vec::with_capacity(heights.len());
        let mut y = 0.0;
        for height in &heights {
            tops.push(y);
            y += height + RANK_GAP;
        }
        let half = |slot: usize| slots[slot].width / 2.0;
        let lefts = (0..slots.len()).map(|slot| centres[slot] - half(slot));
        let left = lefts.reduce(f64::min).unwrap_or(0.0);
        let rights = (0..slots.len()).map(|slot| centres[slot] + half(slot));
        let right = rights.fold(left, f64::max);
        // Nodes of one rank share their middle.
        let top = |slot: usize| {
            let rank = slots[slot].rank;
            tops[rank] + (heights[rank] - slots[slot].height) / 2.0
        };
        let origins = (0..nodes).map(|node| (centres[node] - half(node) - left, top(node)));
        let ends = chains.iter().zip(&downward).zip(&is_turned);
        let lines = ends.map(|((chain, &(from, to)), is_turned)| {
            let x = centres[from] - left;
            let rank = slots[from].rank;
            let mut line = vec![(x, top(from) + slots[from].height)];
            line.push((x, tops[rank] + heights[rank]));
            for passed in chain {
                let rank = slots[*passed].rank;
                let x = centres[*passed] - left;
                line.push((x, tops[rank]));
                line.push((x, tops[rank] + heights[rank]));
            }
            let x = centres[to] - left;
            line.push((x, tops[slots[to].rank]));
            line.push((x, top(to)));
            if *is_turned {
                line.reverse();
            }
            line
        });
        let mut lines: Vec<Line> = lines.collect();
        let height = (y - RANK_GAP).max(0.0);
        let of_ports = lines.split_off(edges.len());
        let mut of_ports = of_ports.into_iter();
        let mut exits: Vec<(usize, Line)> =
            ports.exits.iter().copied().zip(&mut of_ports).collect();
        let mut entries: Vec<(usize, Line)> = ports.entries.iter().copied().zip(of_ports).collect();
        for (_, line) in &mut exits {
            if let Some(last) = line.last_mut() {
                last.1 = height;
            }
        }
        for (_, line) in &mut entries {
            if let Some(first) = line.first_mut() {
                first.1 = 0.0;
            }
        }
        Self {
            origins: origins.collect(),
            width: right - left,
            height,
            lines,
            exits,
            entries,
        }
    }

    /// Returns the line from a node to the lower border.
    pub(super) fn exit(&self, node: usize) -> Line {
        port_line(&self.exits, node)
    }

    /// Returns the line from the upper border to a node.
    pub(super) fn entry(&self, node: usize) -> Line {
        port_line(&self.entries, node)
    }

    /// Returns the line of an edge of the sorted list that the level was made from.
    pub(super) fn line(&self, edges: &[(usize, usize)], ends: (usize, usize)) -> Line {
        let found = edges.binary_search(&ends).ok();
        found
            .and_then(|at| self.lines.get(at).cloned())
            .unwrap_or_default()
    }
}

fn port_line(ports: &[(usize, Line)], node: usize) -> Line {
    let found = ports.binary_search_by_key(&node, |(known, _)| *known).ok();
    found.map(|at| ports[at].1.clone()).unwrap_or_default()
}

/// Ranks the nodes and appends the ports as nodes without height, and their lines as the last edges: exits, then
/// entries. Exits are in the last rank, entries in the first one.
fn with_ports(
    sizes: &[Size],
    mut edges: Vec<(usize, usize)>,
    ports: &Ports,
) -> (Vec<Size>, Vec<(usize, usize)>, Vec<usize>) {
    let mut sizes = sizes.to_vec();
    let mut ranks = ranks(sizes.len(), &edges);
    if ports.entries.iter().any(|node| ranks[*node] == 0) {
        for rank in &mut ranks {
            *rank += 1;
        }
    }
    let after = ports.exits.iter().map(|node| ranks[*node] + 1).max();
    let last = ranks.iter().copied().max().max(after).unwrap_or(0);
    let exits = ports.exits.iter().map(|node| (*node, true));
    for (node, is_exit) in exits.chain(ports.entries.iter().map(|node| (*node, false))) {
        let port = sizes.len();
        sizes.push(Size {
            width: LINE_WIDTH,
            height: 0.0,
        });
        ranks.push(if is_exit { last } else { 0 });
        edges.push(if is_exit { (node, port) } else { (port, node) });
    }
    (sizes, edges, ranks)
}

/// Returns which edges lead back to a node from which they come; a search in depth from each node, in order.
fn turned(nodes: usize, edges: &[(usize, usize)]) -> Vec<bool> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut has_source = vec![false; nodes];
    for (number, (from, to)) in edges.iter().enumerate() {
        out[*from].push(number);
        has_source[*to] = true;
    }
    let mut found = vec![false; edges.len()];
    // 0 is new, 1 on the way, 2 done.
    let mut state = vec![0_u8; nodes];
    let sources = (0..nodes).filter(|node| !has_source[*node]);
    for start in sources.chain(0..nodes) {
        if state[start] != 0 {
            continue;
        }
        state[start] = 1;
        let mut way = vec![(start, 0)];
        while let Some((node, next)) = way.last_mut() {
            let Some(edge) = out[*node].get(*next).copied() else {
                state[*node] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            let to = edges[edge].1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    way.push((to, 0));
                }
                1 => found[edge] = true,
                _ => {}
            }
        }
    }
    found
}

/// Returns the rank of each node: the longest path to it; a node without sources is next to its nearest user.
fn ranks(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut sources = vec![0_usize; nodes];
    for (from, to) in edges {
        out[*from].push(*to);
        sources[*to] += 1;
    }
    let is_source: Vec<bool> = sources.iter().map(|count| *count == 0).collect();
    let mut ranks = vec![0_usize; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|node| is_source[*node]).collect();
    let mut next = 0;
    while let Some(node) = ready.get(next).copied() {
        next += 1;
        for to in &out[node] {
            ranks[*to] = ranks[*to].max(ranks[node] + 1);
            sources[*to] -= 1;
            if sources[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    for node in 0..nodes {
        let nearest = out[node].iter().map(|to| ranks[*to]).min();
        if is_source[node]
            && let Some(nearest) = nearest
        {
            ranks[node] = nearest.saturating_sub(1);
        }
    }
    ranks
}

/// Makes the slots, and for each edge those that its line passes. Edges from one node share their lines.
fn slots(
    sizes: &[Size],
    edges: &[(usize, usize)],
    ranks: &[usize],
) -> (Vec<Slot>, Vec<Vec<usize>>) {
    let nodes = sizes.iter().zip(ranks).map(|(size, rank)| Slot {
        width: size.width,
        height: size.height,
        rank: *rank,
        above: Vec::new(),
        below: Vec::new(),
    });
    let mut slots: Vec<Slot> = nodes.collect();
    let mut passed: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
    let mut chains = Vec::with_capacity(edges.len());
    for (from, to) in edges {
        let between = ranks[*to].saturating_sub(ranks[*from] + 1);
        while passed[*from].len() < between {
            let above = passed[*from].last().copied().unwrap_or(*from);
            let new = slots.len();
            slots.push(Slot {
                width: LINE_WIDTH,
                height: 0.0,
                rank: slots[above].rank + 1,
                above: vec![above],
                below: Vec::new(),
            });
            slots[above].below.push(new);
            passed[*from].push(new);
        }
        let chain = passed[*from][..between].to_vec();
        let last = chain.last().copied().unwrap_or(*from);
        slots[last].below.push(*to);
        slots[*to].above.push(last);
        chains.push(chain);
    }
    (slots, chains)
}

/// Returns the slots of each rank in an order that follows the edges from the first slots.
fn first_order(slots: &[Slot]) -> Vec<Vec<usize>> {
    let ranks = slots.iter().map(|slot| slot.rank + 1).max().unwrap_or(0);
    let mut order: Vec<Vec<usize>> = vec![Vec::new(); ranks];
    let mut seen = vec![false; slots.len()];
    let mut starts: Vec<usize> = (0..slots.len()).collect();
    starts.sort_by_key(|slot| slots[*slot].rank);
    for start in starts {
        let mut waiting = vec![start];
        while let Some(slot) = waiting.pop() {
            if std::mem::replace(&mut seen[slot], true) {
                continue;
            }
            order[slots[slot].rank].push(slot);
            waiting.extend(slots[slot].below.iter().rev());
        }
    }
    order
}

#[allow(clippy::cast_precision_loss, reason = "positions in a drawing")]
fn mean(positions: &[f64], neighbours: &[usize]) -> Option<f64> {
    let sum: f64 = neighbours.iter().map(|slot| positions[*slot]).sum();
    (!neighbours.is_empty()).then(|| sum / neighbours.len() as f64)
}

#[allow(clippy::cast_precision_loss, reason = "positions in a drawing")]
fn number(rank: &[usize], positions: &mut [f64]) {
    for (index, slot) in rank.iter().enumerate() {
        positions[*slot] = index as f64;
    }
}

/// Returns the ranks in the direction of a sweep.
fn sweep_ranks(count: usize, is_downward: bool) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| if is_downward { step } else { count - 1 - step })
}

/// Orders each rank by the mean position of the neighbours, and keeps the order with fewest crossings.
fn reorder(slots: &[Slot], order: &mut Vec<Vec<usize>>) {
    let mut best = order.clone();
    let mut fewest = crossings(slots, order);
    let mut positions = vec![0.0; slots.len()];
    for rank in order.iter() {
        number(rank, &mut positions);
    }
    for sweep in 0..ORDER_SWEEPS {
        if fewest == 0 {
            break;
        }
        let is_downward = sweep % 2 == 0;
        for rank in sweep_ranks(order.len(), is_downward) {
            let key = |slot: usize| {
                let found = &slots[slot];
                let neighbours = if is_downward {
                    &found.above
                } else {
                    &found.below
                };
                mean(&positions, neighbours).unwrap_or(positions[slot])
            };
            let mut keyed: Vec<(f64, usize)> =
                order[rank].iter().map(|&slot| (key(slot), slot)).collect();
            keyed.sort_by(|(left, _), (right, _)| left.total_cmp(right));
            order[rank] = keyed.into_iter().map(|(_, slot)| slot).collect();
            number(&order[rank], &mut positions);
        }
        let now = crossings(slots, order);
        if now < fewest {
            fewest = now;
            best.clone_from(order);
        }
    }
    *order = best;
}

/// Returns the number of crossings between neighbouring ranks.
fn crossings(slots: &[Slot], order: &[Vec<usize>]) -> usize {
    let mut position = vec![0; slots.len()];
    for rank in order {
        for (index, slot) in rank.iter().enumerate() {
            position[*slot] = index;
        }
    }
    let mut found = 0_usize;
    for (rank, below) in order.iter().zip(order.iter().skip(1)) {
        // Edges by their upper end: earlier ones with a lower end farther right cross. Sums of a Fenwick tree.
        let mut counts = vec![0_usize; below.len() + 1];
        let mut before = 0_usize;
        for slot in rank {
            for to in &slots[*slot].below {
                let mut at = position[*to] + 1;
                let mut not_right = 0;
                while at > 0 {
                    not_right += counts[at];
                    at &= at - 1;
                }
                found = found.saturating_add(before - not_right);
            }
            for to in &slots[*slot].below {
                before += 1;
                let mut at = position[*to] + 1;
                while at < counts.len() {
                    counts[at] += 1;
                    at += at & at.wrapping_neg();
                }
            }
        }
    }
    found
}

/// Returns the horizontal centre of each slot.
fn place(slots: &[Slot], order: &[Vec<usize>]) -> Vec<f64> {
    let mut centres = vec![0.0; slots.len()];
    for rank in order {
        let mut x = 0.0;
        for slot in rank {
            centres[*slot] = x + slots[*slot].width / 2.0;
            x += slots[*slot].width + NODE_GAP;
        }
    }
    for sweep in 0..POSITION_SWEEPS {
        let is_downward = sweep % 2 == 0;
        for rank in sweep_ranks(order.len(), is_downward) {
            let wanted = |slot: &usize| {
                let found = &slots[*slot];
                let (first, second) = if is_downward {
                    (&found.above, &found.below)
                } else {
                    (&found.below, &found.above)
                };
                mean(&centres, first)
                    .or_else(|| mean(&centres, second))
                    .unwrap_or(centres[*slot])
            };
            let wanted: Vec<f64> = order[rank].iter().map(wanted).collect();
            spread(slots, &order[rank], &wanted, &mut centres);
        }
    }
    centres
}

/// Moves the slots of a rank as close to their wanted centres as order and distance allow: the least squares
/// solution, by pooling neighbours that would overlap.
#[allow(clippy::cast_precision_loss, reason = "positions in a drawing")]
fn spread(slots: &[Slot], rank: &[usize], wanted: &[f64], centres: &mut [f64]) {
    // Distance of each slot from the first one when they are packed.
    let mut offsets = Vec::with_capacity(rank.len());
    let mut x = 0.0;
    for (index, slot) in rank.iter().enumerate() {
        if index > 0 {
            x += slots[rank[index - 1]].width / 2.0 + NODE_GAP + slots[*slot].width / 2.0;
        }
        offsets.push(x);
    }
    // Sum of the wanted positions of the first slot of each pool, and the number of its slots.
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(rank.len());
    for (wanted, offset) in wanted.iter().zip(&offsets) {
        let mut pool = (wanted - offset, 1);
        while let Some(&(sum, count)) = pools.last()
            && sum / count as f64 >= pool.0 / pool.1 as f64
        {
            pool = (pool.0 + sum, pool.1 + count);
            pools.pop();
        }
        pools.push(pool);
    }
    let starts = pools
        .iter()
        .flat_map(|(sum, count)| std::iter::repeat_n(sum / *count as f64, *count));
    for ((slot, offset), start) in rank.iter().zip(&offsets).zip(starts) {
        centres[*slot] = (start + offset).round();
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "positions are copied, not computed")]
mod tests {
    use super::{Level, Ports, Size};

    /// Numbers that look random, the same in each run.
    fn next(state: &mut u64) -> usize {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) as usize
    }

    fn random(nodes: usize, edges: usize, seed: u64) -> (Vec<Size>, Vec<(usize, usize)>) {
        let mut state = seed;
        let sizes = (0..nodes).map(|_| Size {
            width: f64::from(u32::try_from(next(&mut state) % 200).unwrap_or(0) + 30),
            height: f64::from(u32::try_from(next(&mut state) % 80).unwrap_or(0) + 20),
        });
        let sizes = sizes.collect();
        let ends = (0..edges).map(|_| (next(&mut state) % nodes, next(&mut state) % nodes));
        let mut ends: Vec<_> = ends.filter(|(from, to)| from != to).collect();
        ends.sort_unstable();
        ends.dedup();
        (sizes, ends)
    }

    #[test]
    fn nodes_never_overlap_and_lines_keep_one_direction() {
        for seed in 0..60_u32 {
            let nodes = 1 + seed as usize * 3;
            let (sizes, edges) = random(nodes, nodes * 2, seed.into());
            let level = Level::new(&sizes, &edges, &Ports::default());
            for (left, (x, y)) in level.origins.iter().enumerate() {
                assert!(*x >= -1.0 && x + sizes[left].width <= level.width + 1.0);
                assert!(*y >= 0.0 && y + sizes[left].height <= level.height + 1.0);
                for (right, (other_x, other_y)) in level.origins.iter().enumerate().skip(left + 1) {
                    let is_apart = x + sizes[left].width < *other_x
                        || other_x + sizes[right].width < *x
                        || y + sizes[left].height < *other_y
                        || other_y + sizes[right].height < *y;
                    assert!(is_apart, "seed {seed}: {left} and {right}");
                }
            }
            for ends in &edges {
                let line = level.line(&edges, *ends);
                assert!(line.len() >= 2);
                let heights: Vec<f64> = line.iter().map(|point| point.1).collect();
                let is_down = heights.is_sorted();
                let is_up = heights.iter().rev().is_sorted();
                assert!(is_down || is_up, "seed {seed}: {line:?}");
            }
        }
    }

    /// Returns whether a line from the border or from a node to another one stays outside of all other nodes.
    fn crossed(level: &Level, sizes: &[Size], line: &[(f64, f64)], ends: &[usize]) -> usize {
        let is_inside = |(x, y): (f64, f64), node: usize| {
            let (left, top) = level.origins[node];
            x > left + 0.5
                && x < left + sizes[node].width - 0.5
                && y > top + 0.5
                && y < top + sizes[node].height - 0.5
        };
        let points = line.windows(2).flat_map(|ends| {
            (0..=50_u32).map(|step| {
                let share = f64::from(step) / 50.0;
                let at = |from: f64, to: f64| from + (to - from) * share;
                (at(ends[0].0, ends[1].0), at(ends[0].1, ends[1].1))
            })
        });
        let points: Vec<(f64, f64)> = points.collect();
        let others = (0..sizes.len()).filter(|node| !ends.contains(node));
        others
            .filter(|node| points.iter().any(|point| is_inside(*point, *node)))
            .count()
    }

    #[test]
    fn lines_cross_no_node_also_those_that_leave_the_group() {
        for seed in 0..40_u32 {
            let nodes = 2 + seed as usize * 3;
            let (sizes, edges) = random(nodes, nodes * 2, seed.into());
            let ports = Ports {
                exits: (0..nodes).step_by(3).collect(),
                entries: (0..nodes).step_by(4).collect(),
            };
            let level = Level::new(&sizes, &edges, &ports);
            for ends in &edges {
                let line = level.line(&edges, *ends);
                assert_eq!(crossed(&level, &sizes, &line, &[ends.0, ends.1]), 0);
            }
            for node in &ports.exits {
                let line = level.exit(*node);
                assert_eq!(line.last().unwrap().1, level.height, "seed {seed}");
                assert_eq!(crossed(&level, &sizes, &line, &[*node]), 0, "seed {seed}");
            }
            for node in &ports.entries {
                let line = level.entry(*node);
                assert_eq!(line[0].1, 0.0, "seed {seed}");
                assert_eq!(crossed(&level, &sizes, &line, &[*node]), 0, "seed {seed}");
            }
        }
    }

    #[test]
    fn graphs_without_circles_flow_down() {
        let (sizes, edges) = random(80, 200, 7);
        let mut edges: Vec<_> = edges.into_iter().filter(|(from, to)| from < to).collect();
        edges.sort_unstable();
        let level = Level::new(&sizes, &edges, &Ports::default());
        for (from, to) in &edges {
            assert!(level.origins[*from].1 + sizes[*from].height < level.origins[*to].1);
        }
        let again = Level::new(&sizes, &edges, &Ports::default());
        assert_eq!(again.origins, level.origins);
    }

    #[test]
    fn an_order_without_crossings_is_found() {
        // Two parallel chains whose nodes are numbered alternately the wrong way round.
        let sizes = [Size {
            width: 50.0,
            height: 20.0,
        }; 6];
        let level = Level::new(&sizes, &[(0, 3), (1, 2), (2, 5), (3, 4)], &Ports::default());
        let left = |node: usize| level.origins[node].0;
        assert_eq!(left(0) < left(1), left(3) < left(2));
        assert_eq!(left(3) < left(2), left(4) < left(5));
    }
}
