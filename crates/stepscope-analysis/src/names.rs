//! A set of names of one trace, used by searches and filters.
//!
//! Each name is tested once, whatever its number of slices; scanning millions of slices is then a lookup of one
//! bit each.

use std::borrow::Cow;

use stepscope_model::NameId;
use stepscope_store::Trace;

/// A set of [`NameId`]s of one trace.
#[derive(Clone, Debug)]
pub struct NameSet {
    bits: Vec<u64>,
    len: usize,
}

impl NameSet {
    /// Returns the names for which `matches` is true.
    pub fn matching(trace: &Trace, mut matches: impl FnMut(&str) -> bool) -> Self {
        Self::from_ids(trace, &trace.find_names(&mut matches))
    }

    /// Returns every name of the trace.
    pub fn all(trace: &Trace) -> Self {
        Self::matching(trace, |_| true)
    }

    /// Returns exactly these names.
    pub fn from_ids(trace: &Trace, ids: &[NameId]) -> Self {
        let mut bits = vec![0_u64; trace.name_count().div_ceil(64)];
        for id in ids {
            if let Some(word) = bits.get_mut(id.index() / 64) {
                *word |= 1 << (id.index() % 64);
            }
        }
        let len = bits.iter().map(|word| word.count_ones() as usize).sum();
        Self { bits, len }
    }

    /// Returns the name with exactly this text, if the trace has it.
    pub fn exactly(trace: &Trace, text: &str) -> Self {
        Self::matching(trace, |name| name == text)
    }

    /// Returns whether the name is in the set.
    #[inline]
    pub fn contains(&self, id: NameId) -> bool {
        self.bits
            .get(id.index() / 64)
            .is_some_and(|word| word >> (id.index() % 64) & 1 == 1)
    }

    /// Returns the number of names in the set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Returns whether `text` contains `needle`, ignoring case.
///
/// `needle` must be the result of [`folded`]. Uses Unicode's simple lower case; ASCII text is compared without
/// allocation.
pub fn contains_folded(text: &str, needle: &str) -> bool {
    if needle.is_empty() {
        return true;
    }
    if text.is_ascii() {
        let (text, needle) = (text.as_bytes(), needle.as_bytes());
        return text.len() >= needle.len()
            && text
                .windows(needle.len())
                .any(|part| part.eq_ignore_ascii_case(needle));
    }
    folded(text).contains(needle)
}

/// Returns the text in lower case, as [`contains_folded`] expects it.
pub fn folded(text: &str) -> String {
    text.to_lowercase()
}

/// Evaluates a predicate on each text of the trace, by its number.
pub fn by_text(trace: &Trace, holds: impl Fn(&str) -> bool) -> Vec<bool> {
    (0..trace.name_count())
        .map(|name| holds(trace.name(NameId(u32::try_from(name).unwrap_or(u32::MAX)))))
        .collect()
}

/// Puts JSON that a writer spread over several lines on one line: `[[16, 3], []]`. Returns other text unchanged.
pub fn json_on_one_line(text: &str) -> Cow<'_, str> {
    if !text.starts_with(['[', '{']) || !text.contains('\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() / 2);
    let (mut in_string, mut escaped) = (false, false);
    for letter in text.chars() {
        if in_string {
            out.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        in_string = letter == '"';
        match letter {
            ' ' | '\t' | '\r' | '\n' => {}
            ',' | ':' => out.extend([letter, ' ']),
            _ => out.push(letter),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_ignores_case() {
        for (text, needle, expected) in [
            ("loss_Backward", "BACK", true),
            ("ΣΥΝΕΛΙΞΗ", "συνελ", true),
            ("Größe", "GRÖSSE", false),
            ("", "", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(
                contains_folded(text, &folded(needle)),
                expected,
                "{text} {needle}"
            );
        }
    }

    #[test]
    fn json_of_several_lines_becomes_one_line() {
        for (text, expected) in [
            ("[\n  [\n    16,\n    3\n  ],\n  []\n]", "[[16, 3], []]"),
            ("{\n  \"a \\\" : \": 1\n}", "{\"a \\\" : \": 1}"),
            ("[[16,3],[]]", "[[16,3],[]]"),
            ("two\nlines", "two\nlines"),
            ("[\n\"\\", "[\"\\"),
        ] {
            assert_eq!(json_on_one_line(text), expected);
        }
    }
}
