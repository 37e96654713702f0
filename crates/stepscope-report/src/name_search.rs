//! The names of a trace that a search matches. The short names of C++ functions are searched, too.

use regex::RegexBuilder;
use stepscope_analysis::names::{NameSet, contains_folded, folded};
use stepscope_store::Trace;

use crate::report::shorter;

/// Maximum size of a compiled regular expression, bytes.
const MAX_REGEX_BYTES: usize = 4 << 20;
/// Maximum length of a regular expression, bytes.
const MAX_REGEX_LEN: usize = 4_096;

/// A condition on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSearch<'a> {
    /// The name contains the text, in upper or lower case.
    Text(&'a str),
    /// The name equals the text.
    Exact(&'a str),
    /// The name matches the regular expression.
    Regex(&'a str),
}

impl NameSearch<'_> {
    /// Returns the names that match.
    ///
    /// # Errors
    ///
    /// Why the regular expression cannot be used.
    pub fn find(self, trace: &Trace) -> Result<NameSet, String> {
        match self {
            Self::Text(text) => {
                let text = folded(text);
                let is = |name: &str| contains_folded(name, &text);
                Ok(NameSet::matching(trace, |name| {
                    is(name) || shorter(name).is_some_and(|short| is(&short))
                }))
            }
            Self::Exact(text) => Ok(NameSet::exactly(trace, text)),
            Self::Regex(text) => {
                if text.len() > MAX_REGEX_LEN {
                    return Err(format!("longer than {MAX_REGEX_LEN} bytes"));
                }
                let regex = RegexBuilder::new(text)
                    .size_limit(MAX_REGEX_BYTES)
                    .dfa_size_limit(MAX_REGEX_BYTES)
                    .build()
                    .map_err(|error| error.to_string())?;
                Ok(NameSet::matching(trace, |name| {
                    regex.is_match(name)
                        || shorter(name).is_some_and(|short| regex.is_match(&short))
                }))
            }
        }
    }
}
