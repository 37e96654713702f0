//! Galloping search from the previous position.

/// Returns the first of `count` sorted items for which `is_before` is false, or `count`. `near` is
/// a guess of the result: the number of calls is logarithmic in the distance to it.
#[inline]
pub fn galloping_search(count: usize, near: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let near = near.min(count);
    // Bounds of the result.
    let (mut from, mut to) = (near, near);
    let mut step = 1;
    while to < count && is_before(to) {
        from = to + 1;
        to = count.min(to + step);
        step *= 2;
    }
    step = 1;
    while from > 0 && !is_before(from - 1) {
        to = from - 1;
        from = from.saturating_sub(step);
        step *= 2;
    }
    while from < to {
        let middle = from + (to - from) / 2;
        if is_before(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_ends_where_a_search_among_all_does() {
        let sorted = [-5, 1, 1, 1, 4, 9, 9, 12, 30, 31, 32, 33, 90];
        for near in 0..sorted.len() + 3 {
            for value in -6..95 {
                let expected = sorted.partition_point(|at| *at < value);
                let found = galloping_search(sorted.len(), near, |at| sorted[at] < value);
                assert_eq!(found, expected, "{near} {value}");
            }
        }
        assert_eq!(galloping_search(0, 0, |_| true), 0);
    }
}
