//! A sentence as a list of parts: text, values with units, lines of code, and their links.
//!
//! The code that computes a value also sets its link, so readers never parse numbers out of text.
//! `Display` writes the plain sentence.

use std::borrow::Cow;
use std::fmt;

use stepscope_model::Time;
use stepscope_store::{EventId, Trace};

use super::{Unit, number_format, run_start, since_start_ns};

/// The target of a part of a sentence.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// An event of the trace.
    Event(EventId),
    /// A time range, nanoseconds from the run start.
    Range {
        /// Its start.
        start_ns: f64,
        /// Its end.
        end_ns: f64,
        /// The host on whose tracks it lies.
        host: Option<String>,
    },
    /// A marked step, by its number.
    Step(i64),
    /// A rank.
    Rank(u32),
    /// The first row of the main table that has this text in this column.
    Row {
        /// Key of the column.
        column: Cow<'static, str>,
        /// The row's text there.
        name: String,
    },
    /// A figure of the summary, by its key.
    Scalar(Cow<'static, str>),
    /// A further table of the report, by its name.
    Section(Cow<'static, str>),
    /// A page of the viewer, by its id.
    Page(Cow<'static, str>),
}

impl Link {
    /// Returns a link to a row of the main table, see [`Link::Row`].
    pub fn row(column: &'static str, name: impl Into<String>) -> Self {
        Self::Row {
            column: Cow::Borrowed(column),
            name: name.into(),
        }
    }

    /// Returns a link to a figure of the summary, see [`Link::Scalar`].
    pub const fn scalar(key: &'static str) -> Self {
        Self::Scalar(Cow::Borrowed(key))
    }

    /// Returns a link to a section of the report, see [`Link::Section`].
    pub const fn section(name: &'static str) -> Self {
        Self::Section(Cow::Borrowed(name))
    }

    /// Returns a link to a page of the viewer, see [`Link::Page`].
    pub const fn page(id: &'static str) -> Self {
        Self::Page(Cow::Borrowed(id))
    }

    /// Returns a link to a time range on the tracks of one host; an empty `host` means all hosts.
    pub fn range(trace: &Trace, start: Time, end: Time, host: &str) -> Self {
        let run_start = run_start(trace);
        Self::Range {
            start_ns: since_start_ns(run_start, start),
            end_ns: since_start_ns(run_start, end),
            host: (!host.is_empty()).then(|| host.to_owned()),
        }
    }
}

/// Text, a value with its unit, or a line of code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentencePart {
    /// The visible text.
    pub text: String,
    /// The number in the text, before rounding, and its unit.
    pub value: Option<(f64, Unit)>,
    /// For a value, its evidence; for text, the subject of the sentence.
    pub link: Option<Link>,
    /// Whether the text is a line of code for the user's program.
    pub is_code: bool,
}

impl SentencePart {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Creates a line of code.
    pub fn code(line: impl Into<String>) -> Self {
        Self {
            is_code: true,
            ..Self::text(line)
        }
    }

    /// Creates a value with its formatted text.
    pub fn value(text: impl Into<String>, number: f64, unit: Unit) -> Self {
        Self {
            value: Some((number, unit)),
            ..Self::text(text)
        }
    }

    /// Sets the link; `None` leaves the part without one.
    #[must_use]
    pub fn link(mut self, link: impl Into<Option<Link>>) -> Self {
        self.link = link.into();
        self
    }

    /// Returns whether the part is text without value, link or code.
    const fn is_plain(&self) -> bool {
        self.value.is_none() && self.link.is_none() && !self.is_code
    }
}

impl fmt::Display for SentencePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One or more sentences as a list of parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sentence {
    parts: Vec<SentencePart>,
}

impl Sentence {
    /// Returns the parts in reading order. No part is empty.
    pub fn parts(&self) -> &[SentencePart] {
        &self.parts
    }

    /// Returns whether the sentence has no text.
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends text or parts.
    pub fn push(&mut self, more: impl Into<Self>) {
        for part in more.into().parts {
            match self.parts.last_mut() {
                Some(last) if last.is_plain() && part.is_plain() => last.text.push_str(&part.text),
                _ => self.parts.push(part),
            }
        }
    }

    /// Capitalises the first letter.
    #[must_use]
    pub fn capitalised(mut self) -> Self {
        if let Some(first) = self.parts.first_mut()
            && let Some(letter) = first.text.get_mut(..1)
        {
            letter.make_ascii_uppercase();
        }
        self
    }

    /// Sets the link of every value that has none.
    #[must_use]
    pub fn or_link(mut self, link: &Link) -> Self {
        for part in &mut self.parts {
            if part.value.is_some() && part.link.is_none() {
                part.link = Some(link.clone());
            }
        }
        self
    }

    /// Joins sentences with a separator.
    pub fn join(sentences: impl IntoIterator<Item = Self>, separator: &str) -> Self {
        let mut joined = Self::default();
        for sentence in sentences {
            if !joined.is_empty() {
                joined.push(separator);
            }
            joined.push(sentence);
        }
        joined
    }

    /// Replaces each `{}` of a template with an argument, in order. `sentence!` checks the number
    /// of arguments at compile time.
    pub fn fill<const N: usize>(template: &str, arguments: [Self; N]) -> Self {
        let mut filled = Self::default();
        let mut arguments = arguments.into_iter();
        for (at, text) in template.split("{}").enumerate() {
            if at > 0 {
                filled.push(arguments.next().unwrap_or_default());
            }
            filled.push(text);
        }
        filled
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| part.fmt(f))
    }
}

impl From<SentencePart> for Sentence {
    fn from(part: SentencePart) -> Self {
        let is_empty = part.text.is_empty();
        let parts = if is_empty { Vec::new() } else { vec![part] };
        Self { parts }
    }
}

impl From<String> for Sentence {
    fn from(text: String) -> Self {
        SentencePart::text(text).into()
    }
}

impl From<&String> for Sentence {
    fn from(text: &String) -> Self {
        SentencePart::text(text).into()
    }
}

impl From<&str> for Sentence {
    fn from(text: &str) -> Self {
        SentencePart::text(text).into()
    }
}

impl<T: Into<Self>> From<Option<T>> for Sentence {
    fn from(some: Option<T>) -> Self {
        some.map(Into::into).unwrap_or_default()
    }
}

impl PartialEq<str> for Sentence {
    fn eq(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let parts = self.parts.iter().map(|part| part.text.as_bytes());
        parts.flatten().eq(text)
    }
}

impl PartialEq<&str> for Sentence {
    fn eq(&self, text: &&str) -> bool {
        self == *text
    }
}

/// Counts the `{}` of a template.
pub const fn placeholders(template: &str) -> usize {
    let bytes = template.as_bytes();
    let (mut at, mut count) = (0, 0);
    while at + 1 < bytes.len() {
        if bytes[at] == b'{' && bytes[at + 1] == b'}' {
            count += 1;
            at += 1;
        }
        at += 1;
    }
    count
}

/// Builds a [`Sentence`](crate::report::Sentence) with the syntax of `format!`. An argument is
/// text, a part, a sentence or an `Option` of these.
///
/// ```text
/// sentence!("Steps take {}.", duration(p50).link(Link::scalar("p50_ns")))
/// ```
macro_rules! sentence {
    ($template:literal $(, $argument:expr)* $(,)?) => {{
        const {
            assert!(
                $crate::report::placeholders($template) == <[&str]>::len(&[$(stringify!($argument)),*]),
                "as many arguments as placeholders"
            );
        }
        $crate::report::Sentence::fill($template, [$($crate::report::Sentence::from($argument)),*])
    }};
}
pub(crate) use sentence;

/// Returns a duration as a value of a sentence: `41.2 ms`.
pub fn duration(ns: f64) -> SentencePart {
    SentencePart::value(number_format::duration(ns), ns, Unit::Ns)
}

/// Returns a size as a value of a sentence: `2.90 MiB`.
pub fn bytes(number: f64) -> SentencePart {
    SentencePart::value(number_format::bytes(number), number, Unit::Bytes)
}

/// Returns a share between 0 and 1 as a value of a sentence: `23.4 %`.
pub fn share(of_one: f64) -> SentencePart {
    SentencePart::value(number_format::share(of_one), of_one, Unit::Share)
}

/// Returns an integer as a value of a sentence: `1,234,567`.
pub fn with_thousands(number: impl Into<i128>) -> SentencePart {
    let number = number.into();
    SentencePart::value(
        number_format::with_thousands(number),
        number as f64,
        Unit::Count,
    )
}

/// Returns a number of items as a value of a sentence: `1,234`.
pub fn count(number: usize) -> SentencePart {
    with_thousands(number as i128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{duration, share, with_thousands};

    #[test]
    fn templates_keep_values_and_links_and_merge_text() {
        let of = sentence!(" of {}", with_thousands(7_u32).link(Link::page("ops")));
        let name = "aten::mm".to_owned();
        let made = sentence!(
            "{}{}: {} ({}){}.",
            &name,
            of,
            duration(4_426_114.0).link(Link::Event(EventId(3))),
            share(0.5),
            None::<Sentence>
        );
        assert_eq!(made, "aten::mm of 7: 4.43 ms (50.0 %).");
        let texts: Vec<&str> = made.parts().iter().map(|part| &*part.text).collect();
        assert_eq!(
            texts,
            ["aten::mm of ", "7", ": ", "4.43 ms", " (", "50.0 %", ")."]
        );
        assert_eq!(made.parts()[3].value, Some((4_426_114.0, Unit::Ns)));
        assert_eq!(made.parts()[3].link, Some(Link::Event(EventId(3))));
        assert_eq!(made.parts()[5].link, None);
    }

    #[test]
    fn values_without_a_link_get_the_common_one() {
        let made = sentence!("{} and {}", share(0.1).link(Link::Rank(2)), share(0.2));
        let linked = made.or_link(&Link::page("ranks"));
        let links: Vec<_> = linked
            .parts()
            .iter()
            .map(|part| part.link.clone())
            .collect();
        let expected = [Some(Link::Rank(2)), None, Some(Link::page("ranks"))];
        assert_eq!(links, expected);
    }

    #[test]
    fn sentences_are_joined_and_begin_with_a_capital() {
        let joined = Sentence::join(["one".into(), Sentence::from(share(0.5))], ", ");
        assert_eq!(joined.capitalised(), "One, 50.0 %");
        assert!(Sentence::from("").is_empty());
        assert!(Sentence::default().capitalised().is_empty());
        assert_eq!(placeholders("{}{} {x} {{}"), 3);
    }
}
