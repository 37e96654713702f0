//! Costs and memory plans, compared with XLA's and XProf's own figures.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    clippy::disallowed_methods,
    reason = "tests fail loudly; they read programs and figures, which are whole numbers and f32 in JSON"
)]

mod advice;
mod hostile;
mod large;
mod support;
mod truths;
