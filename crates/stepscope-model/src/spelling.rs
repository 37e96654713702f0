//! Edit distance between two words, for "did you mean" suggestions.

/// Returns the number of letters to insert, remove, replace or swap with a neighbour to turn one
/// word into the other.
///
/// Time and memory grow with the product of both lengths: check the length of untrusted words
/// first.
///
/// ```
/// use stepscope_model::spelling::edits;
/// assert_eq!(edits("inof", "info"), 1);
/// assert_eq!(edits("tpu_trace_mod", "tpu_trace_mode"), 1);
/// ```
pub fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=other.len()).collect();
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[one.len()][other.len()]
}

/// Returns the candidate with the fewest [`edits`] from `word`, provided that there are at most
/// two, or at most half the length of the longer word. Words above 64 letters match no candidate.
///
/// ```
/// use stepscope_model::spelling::nearest;
/// assert_eq!(nearest("kernel", ["ops", "kernels"]), Some("kernels"));
/// assert_eq!(nearest("weather", ["ops", "kernels"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.chars().nth(LONGEST).is_some() {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .min()
        .filter(|(edits, candidate)| *edits <= (candidate.len().max(word.len()) / 2).max(2))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::edits;

    #[test]
    fn each_kind_of_slip_counts_once() {
        for (one, other, wanted) in [
            ("", "", 0),
            ("", "abc", 3),
            ("view", "veiw", 1),
            ("report", "repor", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edits(one, other), wanted, "{one} {other}");
            assert_eq!(edits(other, one), wanted, "{other} {one}");
        }
    }
}
