//! The profilers whose own figures reports add on request.

use std::fmt;
use std::str::FromStr;

use crate::report::{Cell, Report, Table};

/// A profiler whose figures some reports add on request, by that profiler's own definitions.
///
/// The names of these sections, or the keys of these columns, begin with the profiler's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerProfiler {
    /// Holistic Trace Analysis.
    Hta,
    /// XProf.
    XProf,
}

impl PeerProfiler {
    /// Every profiler, in the order of lists.
    pub const ALL: [Self; 2] = [Self::Hta, Self::XProf];

    /// Returns the name in commands and addresses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hta => "hta",
            Self::XProf => "xprof",
        }
    }

    /// Returns the name in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Hta => "HTA",
            Self::XProf => "XProf",
        }
    }

    /// Returns the names of the reports that add figures of this profiler.
    pub const fn reports(self) -> &'static [&'static str] {
        match self {
            Self::Hta => &["idle", "overlap", "ranks"],
            Self::XProf => &["steps", "ops", "hlo-memory"],
        }
    }

    /// Returns the profiler whose figures a report can add.
    pub fn of_report(kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|profiler| profiler.reports().contains(&kind))
    }

    /// Returns whether a report contains figures of this profiler.
    pub(crate) fn has_figures_in(self, report: &Report) -> bool {
        let is_own = |name: &str| name.starts_with(self.as_str());
        let has_value = |table: &Table| {
            let mut columns = table.columns.iter().enumerate();
            columns.any(|(at, column)| {
                let mut cells = table.rows.iter().filter_map(|row| row.get(at));
                is_own(&column.key) && cells.any(|cell| *cell != Cell::Empty)
            })
        };
        has_value(&report.table)
            || report
                .sections
                .iter()
                .any(|section| is_own(&section.name) || has_value(&section.table))
    }
}

impl FromStr for PeerProfiler {
    type Err = UnknownPeerProfiler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|profiler| profiler.as_str() == name)
            .ok_or_else(|| UnknownPeerProfiler(name.to_owned()))
    }
}

/// The requested name, which is that of no [`PeerProfiler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPeerProfiler(String);

impl fmt::Display for UnknownPeerProfiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot add the figures of '{}': no such profiler\nhelp: use {}",
            self.0,
            PeerProfiler::ALL.map(PeerProfiler::as_str).join(" or ")
        )
    }
}

impl std::error::Error for UnknownPeerProfiler {}

#[cfg(test)]
mod tests {
    use stepscope_analysis::parallel::Cancel;

    use super::*;
    use crate::reports::{Options, kind, make};

    #[test]
    fn names_are_read_and_unknown_ones_list_the_valid_ones() {
        for profiler in PeerProfiler::ALL {
            assert_eq!(profiler.as_str().parse::<PeerProfiler>(), Ok(profiler));
        }
        let error = "nsys".parse::<PeerProfiler>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot add the figures of 'nsys': no such profiler\nhelp: use hta or xprof"
        );
    }

    #[test]
    fn every_report_with_figures_of_a_profiler_exists() {
        for profiler in PeerProfiler::ALL {
            for name in profiler.reports() {
                assert!(kind(name).is_ok(), "{name}");
                assert_eq!(PeerProfiler::of_report(name), Some(profiler));
            }
        }
        assert_eq!(PeerProfiler::of_report("overview"), None);
    }

    #[test]
    fn reports_without_figures_of_a_profiler_name_those_that_have_them() {
        let trace = stepscope_store::TraceBuilder::new().finish();
        let options = Options {
            compat: Some(PeerProfiler::Hta),
            ..Options::default()
        };
        let error = make(&trace, "steps", &options, &Cancel::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot add the figures of HTA to report 'steps': it has none\nhelp: use one of these reports: idle, overlap, ranks"
        );
        assert!(make(&trace, "idle", &options, &Cancel::default()).is_ok());
    }

    #[test]
    fn rows_without_figures_of_a_profiler_have_a_note() {
        let trace = stepscope_store::ascii_trace::trace("main | load-----  fwd---  load--");
        let note = |compat| {
            let options = Options {
                by: Some("tree".to_owned()),
                compat,
                ..Options::default()
            };
            let report = make(&trace, "ops", &options, &Cancel::default()).unwrap();
            assert!(report.missing.is_none());
            let mut notes = report.notes.iter().map(ToString::to_string);
            notes.any(|note| note == "XProf has no figures for this run or these rows.")
        };
        assert!(note(Some(PeerProfiler::XProf)));
        assert!(!note(None));
    }
}
