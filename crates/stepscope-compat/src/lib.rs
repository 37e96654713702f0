//! Figures and tables of other profilers, computed from a trace by the definitions of those profilers.
//!
//! | Module | Reproduces |
//! |---|---|
//! | [`torch`] | `key_averages().table()` and `export_stacks` of `torch.profiler` |
//! | [`hta`] | breakdowns, idle times and stragglers of Holistic Trace Analysis |
//! | [`xprof_steps`] | step lengths of XProf |
//! | [`lightning_actions`] | actions that Lightning's `SimpleProfiler` reports |
//! | [`python_profile`], [`profile_text`] | `cProfile` statistics, and the tables that `pstats` and Lightning print |
//!
//! **Invariant:** each figure equals the other profiler's, or `docs/reference/peers.md` documents the difference.
//! `stepscope-analysis` has our own definitions.

pub mod hta;
pub mod lightning_actions;
pub mod profile_text;
pub mod python_profile;
pub mod torch;
pub mod xprof_steps;
