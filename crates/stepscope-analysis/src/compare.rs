//! Comparison of runs: which is faster, by how much, with what confidence, and what makes the difference.
//!
//! Reading order: [`run`] (one run as samples and sums), [`statistics`](crate::statistics) (ratio, interval, test),
//! [`result`] (two sides, each of one or several runs), and below them `charge` (who owns each moment of a step),
//! [`owner`] (buckets, names), [`rename`] (names that changed between the runs), `align` (which rows belong together),
//! `attribution` (what each row makes of the difference), [`sampling`] (whether steps or runs are the samples),
//! [`memory`] (what holds the peak), `comparability` (what qualifies the figures), [`prediction`] (earlier predictions,
//! and what happened), [`history`] (a series of runs).
//!
//! With `n` compared steps of a side, the mean step of that side is the sum over the owners of its moments:
//!
//! ```text
//! mean step = sum over (bucket, owner) of own        own = its moments in the compared steps / n
//! mean step of new - mean step of base = sum over rows of (own_new - own_base)
//! own_new - own_base = (count_new - count_base) * own_base / count_base           by count
//!                    + the rest                                                   by time per call
//! ```
//!
//! Times of rows are whole picoseconds that add up exactly.

mod align;
mod attribution;
mod charge;
mod comparability;
pub mod history;
pub mod memory;
pub mod owner;
pub mod prediction;
pub mod rename;
pub mod result;
pub mod run;
pub mod sampling;
