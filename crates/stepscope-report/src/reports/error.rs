//! Why a report was not made.

use stepscope_model::Cancelled;

use super::names;
use crate::peer_profiler::PeerProfiler;

/// Why a report was not made.
///
/// [`cause`](Self::cause) and [`help`](Self::help) are the lines of the message; `Display` writes both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// No report has this name.
    UnknownKind {
        /// The requested name.
        asked: String,
        /// The most similar name.
        nearest: Option<&'static str>,
    },
    /// The report has no such row type.
    UnknownBy {
        /// The requested row type.
        asked: String,
        /// Name of the report.
        kind: &'static str,
        /// The valid row types.
        known: &'static [&'static str],
    },
    /// The report does not take an option.
    UnknownOption {
        /// Name of the option.
        option: &'static str,
        /// Name of the report.
        kind: &'static str,
        /// The reports that take it.
        kinds: &'static [&'static str],
    },
    /// The report has no figures of a profiler.
    NoPeerFigures {
        /// The requested profiler.
        profiler: PeerProfiler,
        /// Name of the report.
        kind: &'static str,
    },
    /// A what-if scenario cannot be read.
    WhatIf {
        /// The failed action and its cause, with the position of the mistake.
        cause: String,
        /// The valid scenarios.
        help: String,
    },
    /// The run has no such compiled program.
    UnknownModule {
        /// The requested program.
        asked: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The request was cancelled.
    Cancelled,
    /// The trace's cache image is damaged and cannot be rebuilt.
    Damaged,
}

impl ReportError {
    /// Returns the failed action and its cause: `cannot DO X: CAUSE`.
    pub fn cause(&self) -> String {
        match self {
            Self::UnknownKind { asked, .. } => {
                format!("cannot make report '{asked}': there is no such report")
            }
            Self::UnknownBy {
                asked,
                kind,
                known: [],
            } => format!("cannot make report '{kind}' by '{asked}': its rows have no groupings"),
            Self::UnknownBy { asked, kind, .. } => {
                format!("cannot make report '{kind}' by '{asked}': it has no such rows")
            }
            Self::UnknownOption {
                option,
                kind,
                kinds,
            } => format!(
                "cannot limit report '{kind}' by {option}: only these take it: {}",
                kinds.join(", ")
            ),
            Self::NoPeerFigures { profiler, kind } => format!(
                "cannot add the figures of {} to report '{kind}': it has none",
                profiler.title()
            ),
            Self::WhatIf { cause, .. } => cause.clone(),
            Self::UnknownModule { asked, .. } => {
                format!("cannot report on module '{asked}': the run has no such compiled program")
            }
            Self::Cancelled => "cannot make the report: cancelled".to_owned(),
            Self::Damaged => {
                "cannot make the report: the cached import of this run is damaged, and its files cannot be read again"
                    .to_owned()
            }
        }
    }

    /// Returns what to do; `None` where only the caller can advise.
    pub fn help(&self) -> Option<String> {
        let did_you_mean = |name: &str| format!("did you mean '{name}'?");
        match self {
            Self::UnknownKind {
                nearest: Some(nearest),
                ..
            } => Some(did_you_mean(nearest)),
            Self::UnknownKind { nearest: None, .. } => {
                Some(format!("use one of {}", names().join(", ")))
            }
            Self::UnknownBy { known: [], .. } => Some("leave out the grouping".to_owned()),
            Self::UnknownBy { known, .. } => Some(format!("use one of {}", known.join(", "))),
            Self::NoPeerFigures { profiler, .. } => Some(format!(
                "use one of these reports: {}",
                profiler.reports().join(", ")
            )),
            Self::WhatIf { help, .. } => Some(help.clone()),
            Self::UnknownModule {
                nearest: Some(nearest),
                ..
            } => Some(did_you_mean(nearest)),
            Self::UnknownModule { nearest: None, .. } => {
                Some("report 'hlo-cost' lists them".to_owned())
            }
            Self::UnknownOption { .. } | Self::Cancelled | Self::Damaged => None,
        }
    }
}

impl From<Cancelled> for ReportError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.cause())?;
        match self.help() {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ReportError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_the_cause_then_the_help() {
        let error = ReportError::UnknownKind {
            asked: "a\nhelp: b".to_owned(),
            nearest: Some("ops"),
        };
        assert_eq!(
            error.cause(),
            "cannot make report 'a\nhelp: b': there is no such report"
        );
        assert_eq!(error.help().as_deref(), Some("did you mean 'ops'?"));
        assert_eq!(
            error.to_string(),
            format!("{}\nhelp: did you mean 'ops'?", error.cause())
        );
        let error = ReportError::Cancelled;
        assert_eq!(error.help(), None);
        assert_eq!(error.to_string(), "cannot make the report: cancelled");
    }

    #[test]
    fn report_without_groupings_advises_to_leave_out_the_grouping() {
        let error = ReportError::UnknownBy {
            asked: "op".to_owned(),
            kind: "overview",
            known: &[],
        };
        assert_eq!(
            error.to_string(),
            "cannot make report 'overview' by 'op': its rows have no groupings\nhelp: leave out the grouping"
        );
    }
}
