//! Analyses of a trace: pure functions from a trace to numbers.
//!
//! Reading order: [`steps`] and [`ops`], [`run_profile`] and [`findings`] above them, then [`names`] and
//! [`parallel`] (shared by all scans of a range), [`statistics`] (intervals and tests), and [`timeline_query`] (queries of
//! the timeline).
//! [`programs`] are the compiled programs of a run; `stepscope-hlo` says what they cost and how they use memory.
//!
//! **Invariant:** this crate does no I/O, reads no bytes of a file, and writes no sentence: field names or types
//! carry units; `stepscope-report` writes text and JSON.

pub mod collectives;
pub mod compare;
pub mod compilations;
pub mod critical_path;
pub mod device;
pub mod event_context;
pub mod execution_trace;
pub mod findings;
pub mod hlo_text;
pub mod idle;
pub mod input;
pub mod intervals;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod mfu;
pub mod names;
pub mod op_class;
pub mod op_profile;
pub mod ops;
pub mod parallel;
pub mod path_ranges;
pub mod peaks;
pub mod producer;
pub mod programs;
pub mod python_calls;
pub mod ranks;
pub mod roofline;
pub mod run_profile;
pub mod slice_class;
pub mod slow_steps;
pub mod stack_samples;
pub mod statistics;
pub mod steps;
pub mod timeline_query;
pub mod torch_args;
pub mod torch_cost;
pub mod torch_op_profile;
pub mod training_phase;
