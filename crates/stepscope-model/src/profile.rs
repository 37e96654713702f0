//! Statistics without a timeline: the total time of functions or actions.
//!
//! `cProfile` statistics and the text reports of profilers hold sums that another program computed,
//! often already rounded. They are stored unchanged, in seconds and as floats. They have no
//! position on a clock and are never converted to [`Time`](crate::Time).

use std::sync::Arc;

/// What the rows of a profile stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProfileKind {
    /// Functions of a program, as `cProfile` counts them.
    #[default]
    Functions,
    /// Actions of a trainer.
    Actions,
}

impl ProfileKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Functions, Self::Actions];

    /// Returns the stable word used in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Actions => "actions",
        }
    }
}

/// One profile: a table of sums. A file may hold several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What the rows stand for.
    pub kind: ProfileKind,
    /// The profiled action, if the profile covers the functions of one action; empty otherwise.
    pub name: String,
    /// The trainer's stage, as the report spells it (`FIT`); empty without one.
    pub stage: String,
    /// Rank of the process among those of its machine.
    pub rank: Option<u32>,
    /// Total seconds: of the whole program for actions, the sum of self times for functions.
    pub total_s: Option<f64>,
    /// Total number of calls.
    pub calls: Option<u64>,
    /// Number of calls that were not below another call of the same function.
    pub primitive_calls: Option<u64>,
    /// Number of rows before the writer omitted some; `None` if no row was omitted.
    pub rows_before: Option<u64>,
    /// The writer's rule for omitting rows, in its own spelling (`0.2`, `20`); empty if no row was
    /// omitted.
    pub restriction: String,
    /// The writer rounded times to multiples of this, in seconds. `None` if times have full float
    /// precision, or were rounded to a number of significant digits.
    pub rounded_to_s: Option<f64>,
    /// The rows, in the file's order.
    pub rows: Vec<ProfileRow>,
}

/// One function, action or operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRow {
    /// Name. C functions have the text that `cProfile` gives them, in `<` and `>`.
    pub name: Arc<str>,
    /// The source file; `~` for C functions, empty for rows that are not functions.
    pub file: Arc<str>,
    /// Line in that file; 0 if unknown.
    pub line: u32,
    /// Number of calls; `None` if the file does not hold it.
    pub calls: Option<u64>,
    /// Number of calls that were not below another call of the same function.
    pub primitive_calls: Option<u64>,
    /// Seconds from start to end, summed over the outermost calls.
    pub total_s: Option<f64>,
    /// Seconds in the function itself.
    pub self_s: Option<f64>,
    /// Mean seconds per call, if the file holds it (for functions, per primitive call).
    pub mean_s: Option<f64>,
    /// Mean self seconds per call, if the file holds it.
    pub self_mean_s: Option<f64>,
    /// Share of the total in percent, if the file holds it.
    pub percent: Option<f64>,
    /// The callers.
    pub callers: Vec<ProfileCaller>,
}

/// Calls of one function by another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileCaller {
    /// Index of the caller among the profile's rows.
    pub row: u32,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that were not below another call of the same function by the same caller.
    pub primitive_calls: u64,
    /// Seconds from start to end.
    pub total_s: f64,
    /// Seconds in the called function itself.
    pub self_s: f64,
}
