//! What the critical path says about the causes: the time of a cause that is not on the path costs no step.

use stepscope_model::Cancelled;

use super::windows::Windows;
use super::{Finding, FindingCause, LISTED};
use crate::critical_path::path::PathKind;
use crate::critical_path::{CriticalPath, PathScope, WindowEnd};
use crate::parallel::Cancel;
use crate::run_profile::{AnalysisScope, RunProfile};

/// Maximum number of slices of the path: in a long run, the last steps stand for all.
const MAX_SLICES: usize = 1 << 20;

/// Parts of the critical path of the steps, up to the end of their device work, as fractions of its length.
pub(super) struct PathShares {
    /// Host threads, and the lags that belong to them: launches, returns, hand-overs.
    host: f64,
    /// Computation of devices, and the gaps between two kernels of a queue.
    compute: f64,
    copy: f64,
    communication: f64,
    event_wait: f64,
    /// The file does not show what the path waits for.
    unknown: f64,
}

impl PathShares {
    /// Computes the path of the windows without warm-up. `None` for a run without devices: there, all work is the
    /// host's.
    pub(super) fn compute(
        run_profile: &RunProfile<'_>,
        windows: &Windows,
        cancel: &Cancel,
    ) -> Result<Option<Self>, Cancelled> {
        let counted = windows.list.iter();
        let counted = counted.filter(|window| window.role.counts());
        let start = counted.clone().map(|window| window.range.start).min();
        let end = counted.map(|window| window.range.end).max();
        let (Some(start), Some(end)) = (start, end) else {
            return Ok(None);
        };
        if run_profile.devices.list.is_empty() {
            return Ok(None);
        }
        let scope = PathScope {
            steps: AnalysisScope {
                range: Some(start..end),
                ..run_profile.scope.clone()
            },
            end: WindowEnd::DeviceWork,
        };
        let trace = run_profile.trace;
        let found = CriticalPath::of_last_slices(trace, &scope, MAX_SLICES, cancel)?;
        Ok(found.as_ref().and_then(Self::of_path))
    }

    fn of_path(path: &CriticalPath<'_>) -> Option<Self> {
        let totals = path.totals();
        let length = totals.length();
        if length <= 0 {
            return None;
        }
        let share = |ps: i64| ps as f64 / length as f64;
        let of = |kind: PathKind| share(totals.by_kind[kind as usize]);
        Some(Self {
            host: of(PathKind::Host)
                + of(PathKind::LaunchLatency)
                + of(PathKind::SyncReturn)
                + of(PathKind::Handover),
            compute: share(totals.fine.compute) + of(PathKind::KernelGap),
            copy: share(totals.fine.copy),
            communication: of(PathKind::Communication),
            event_wait: of(PathKind::EventWait),
            unknown: of(PathKind::Unknown),
        })
    }

    /// Returns the fraction of the path on which the time of a cause may lie; `None` where the path does not bound it:
    /// other ranks and devices bear the cause, or it is a risk.
    fn of_cause(&self, cause: FindingCause) -> Option<f64> {
        let share = match cause {
            // A TPU waits for input in an infeed, which is a copy.
            FindingCause::InputBound => self.host + self.copy,
            FindingCause::LaunchBound
            | FindingCause::HostBound
            | FindingCause::Synchronization
            | FindingCause::MisplacedOp
            | FindingCause::Compilation
            | FindingCause::AllocatorThrash
            | FindingCause::Fragmentation
            | FindingCause::ProfilerOverhead => self.host,
            FindingCause::SmallKernels => self.host + self.compute,
            FindingCause::ExposedCopy => self.host + self.copy + self.event_wait,
            FindingCause::ExposedCommunication => self.communication + self.event_wait,
            FindingCause::LowPrecisionOpportunity
            | FindingCause::MemoryBoundKernels
            | FindingCause::DeviceBound => self.compute,
            FindingCause::Straggler
            | FindingCause::LoadImbalance
            | FindingCause::MemoryGrowth
            | FindingCause::NearMemoryLimit
            | FindingCause::OutlierSteps
            | FindingCause::WarmUpOnly
            | FindingCause::PipelineBubble
            | FindingCause::IdleUnknown
            | FindingCause::ClockSkew => return None,
        };
        Some((share + self.unknown).min(1.0))
    }
}

/// Limits each finding to what the path has of its cause, and drops findings that are off the path.
pub(super) fn limit(findings: &mut Vec<Finding>, path: &PathShares) {
    for finding in findings.iter_mut() {
        finding.path_share = path.of_cause(finding.cause);
        if let Some(most) = finding.path_share.filter(|most| *most < finding.share) {
            let scale = most / finding.share;
            finding.saving_ns = finding.saving_ns.map(|ns| ns * scale);
            finding.share = most;
        }
    }
    findings.retain(|finding| finding.path_share.is_none_or(|share| share >= LISTED));
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "halves are exact")]
mod tests {
    use super::super::Confidence;
    use super::*;

    /// A path of a busy device: an eighth of it on the host, the rest computation.
    const MOSTLY_COMPUTE: PathShares = PathShares {
        host: 0.125,
        compute: 0.875,
        copy: 0.0,
        communication: 0.0,
        event_wait: 0.0,
        unknown: 0.0,
    };

    /// Returns the findings of these causes, each with half of the steps and 800 ns, after the limit of a path.
    fn limited(causes: &[FindingCause], path: &PathShares) -> Vec<Finding> {
        let findings = causes.iter().map(|cause| Finding {
            share: 0.5,
            saving_ns: Some(800.0),
            ..Finding::new(*cause, Confidence::High)
        });
        let mut findings = findings.collect();
        limit(&mut findings, path);
        findings
    }

    #[test]
    fn findings_take_no_more_than_the_path_has_of_their_cause() {
        let causes = [FindingCause::HostBound, FindingCause::DeviceBound];
        let found = limited(&causes, &MOSTLY_COMPUTE);
        let figures: Vec<_> = found
            .iter()
            .map(|finding| (finding.share, finding.saving_ns, finding.path_share))
            .collect();
        assert_eq!(
            figures,
            [
                (0.125, Some(200.0), Some(0.125)),
                (0.5, Some(800.0), Some(0.875))
            ]
        );
    }

    #[test]
    fn causes_off_the_path_are_no_findings() {
        let causes = [
            FindingCause::ExposedCommunication,
            FindingCause::DeviceBound,
        ];
        let found = limited(&causes, &MOSTLY_COMPUTE);
        let causes: Vec<FindingCause> = found.iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, [FindingCause::DeviceBound]);
    }

    #[test]
    fn unknown_time_of_the_path_may_belong_to_any_cause() {
        let path = PathShares {
            compute: 0.25,
            unknown: 0.625,
            ..MOSTLY_COMPUTE
        };
        let found = limited(&[FindingCause::ExposedCommunication], &path);
        assert_eq!(found[0].path_share, Some(0.625));
    }

    #[test]
    fn path_does_not_limit_causes_of_other_ranks() {
        let found = limited(&[FindingCause::Straggler], &MOSTLY_COMPUTE);
        assert_eq!((found[0].share, found[0].path_share), (0.5, None));
    }
}
