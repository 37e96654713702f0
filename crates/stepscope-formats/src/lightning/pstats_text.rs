//! The text output of `pstats`: a heading with the totals, and a row for each function.

use stepscope_model::{Profile, ProfileKind, ProfileRow};

/// Resolution of printed times: three decimals.
const ROUNDED_TO_S: f64 = 0.001;

/// Parses the heading of the output: `196 function calls (185 primitive calls) in 0.000 seconds`.
pub(crate) fn head(line: &str) -> Option<Profile> {
    let (calls, rest) = line.trim().split_once(" function calls ")?;
    let (primitive_calls, rest) = match rest.strip_prefix('(') {
        Some(rest) => {
            let (count, rest) = rest.split_once(" primitive calls) ")?;
            (count.parse().ok()?, rest)
        }
        None => (calls.parse().ok()?, rest),
    };
    let total = rest.strip_prefix("in ")?.strip_suffix(" seconds")?;
    Some(Profile {
        kind: ProfileKind::Functions,
        total_s: Some(finite(total)?),
        calls: Some(calls.parse().ok()?),
        primitive_calls: Some(primitive_calls),
        rounded_to_s: Some(ROUNDED_TO_S),
        ..Profile::default()
    })
}

/// Returns whether a line is the heading of the columns.
pub(crate) fn columns(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next() == Some("ncalls") && words.next() == Some("tottime")
}

/// Parses `List reduced from 51 to 26 due to restriction <0.5>`: the original number of rows, and
/// the restriction.
pub(crate) fn reduced(line: &str) -> Option<(u64, &str)> {
    let rest = line.trim().strip_prefix("List reduced from ")?;
    let before = rest.split(' ').next()?.parse().ok()?;
    let rule = rest
        .split_once("restriction <")
        .and_then(|(_, rule)| rule.strip_suffix('>'));
    Some((before, rule.unwrap_or_default()))
}

/// Parses one function: `17/6    0.000    0.000    0.001    0.000 module.py:2636(_named_members)`.
pub(crate) fn row(line: &str) -> Option<ProfileRow> {
    let mut rest = line.trim();
    let mut word = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(word)
    };
    let ncalls = word()?;
    let (calls, primitive_calls): (u64, u64) = match ncalls.split_once('/') {
        Some((calls, primitive)) => (calls.parse().ok()?, primitive.parse().ok()?),
        None => (ncalls.parse().ok()?, ncalls.parse().ok()?),
    };
    let self_s = finite(word()?)?;
    // Without calls there is no time per call, and both fields are blank.
    let self_mean_s = match calls {
        0 => None,
        _ => Some(finite(word()?)?),
    };
    let total_s = finite(word()?)?;
    let mean_s = match primitive_calls {
        0 => None,
        _ => Some(finite(word()?)?),
    };
    let (file, line, name) = function(rest);
    Some(ProfileRow {
        name: name.into(),
        file: file.into(),
        line,
        calls: Some(calls),
        primitive_calls: Some(primitive_calls),
        total_s: Some(total_s),
        self_s: Some(self_s),
        mean_s,
        self_mean_s,
        ..ProfileRow::default()
    })
}

/// Parses `file.py:12(name)`, or `{method 'append' of 'list' objects}`.
fn function(text: &str) -> (String, u32, String) {
    let own = |text: &str| ("~".to_owned(), 0, text.to_owned());
    if let Some(inner) = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
    {
        return own(&format!("<{inner}>"));
    }
    let Some(inner) = text.strip_suffix(')') else {
        return own(text);
    };
    // Uses the last position where a line number precedes a bracket: a name can contain brackets
    // too.
    for (at, _) in inner.match_indices('(').rev() {
        let (before, name) = (&inner[..at], &inner[at + 1..]);
        if let Some((file, line)) = before.rsplit_once(':')
            && let Ok(line) = line.parse()
        {
            return (file.to_owned(), line, name.to_owned());
        }
    }
    own(text)
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_understood() {
        let found =
            head("         196 function calls (185 primitive calls) in 0.012 seconds").unwrap();
        assert_eq!(
            (found.calls, found.primitive_calls, found.total_s),
            (Some(196), Some(185), Some(0.012))
        );
        let found = head("   7 function calls in 0.000 seconds").unwrap();
        assert_eq!((found.calls, found.primitive_calls), (Some(7), Some(7)));
        for other in [
            "7 function calls",
            " function calls in 1 seconds",
            "in 1 seconds",
        ] {
            assert_eq!(head(other), None);
        }
        assert_eq!(
            reduced("   List reduced from 51 to 26 due to restriction <0.5>"),
            Some((51, "0.5"))
        );
    }

    #[test]
    fn functions_of_all_kinds_are_distinguished() {
        for (text, file, line, name) in [
            ("a.py:12(f)", "a.py", 12, "f"),
            ("<string>:1(<module>)", "<string>", 1, "<module>"),
            ("<frozen os>:7(g)", "<frozen os>", 7, "g"),
            (
                "{built-in method time.sleep}",
                "~",
                0,
                "<built-in method time.sleep>",
            ),
            ("C:\\a b.py:3(f(1))", "C:\\a b.py", 3, "f(1)"),
            ("odd", "~", 0, "odd"),
        ] {
            assert_eq!(function(text), (file.to_owned(), line, name.to_owned()));
        }
    }

    #[test]
    fn rows_without_calls_have_no_time_of_a_call() {
        let found = row("        0    0.000             0.250          a.py:1(f)").unwrap();
        assert_eq!((found.calls, found.total_s), (Some(0), Some(0.25)));
        let found = row("     17/6    0.001    0.000    0.002    0.000 m.py:2(_n)").unwrap();
        assert_eq!((found.calls, found.primitive_calls), (Some(17), Some(6)));
        assert_eq!(row("   Ordered by: cumulative time"), None);
    }
}
