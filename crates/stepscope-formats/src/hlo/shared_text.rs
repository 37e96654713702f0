//! Texts that the instructions of a program share.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A text that several instructions share.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedText {
    /// `None` is the empty text.
    text: Option<Arc<str>>,
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

impl<T: Into<Box<str>>> From<T> for SharedText {
    fn from(text: T) -> Self {
        let text: Box<str> = text.into();
        Self {
            text: (!text.is_empty()).then(|| text.into()),
        }
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self)
    }
}
