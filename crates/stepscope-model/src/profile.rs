//! Profiles that have no timeline: what functions or actions took in sum.
//!
//! `cProfile` statistics and profilers' report texts hold sums that another program has taken, often
//! already rounded. They are kept as that program wrote them, in seconds and as floats; they are no
//! places on a clock, and no [`Time`](crate::Time) is made of them.

use std::sync::Arc;

/// What the rows of a profile are.
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

    /// The stable word used in JSON.
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
    /// What its rows are.
    pub kind: ProfileKind,
    /// What was profiled: the action, for a profile of what ran within one. Empty for the whole.
    pub name: String,
    /// The trainer's stage, as the report spells it (`FIT`); empty without one.
    pub stage: String,
    /// Rank of the process among those of its machine.
    pub rank: Option<u32>,
    /// Seconds in all: of the whole for actions, of all functions' own time for functions.
    pub total_s: Option<f64>,
    /// Calls in all.
    pub calls: Option<u64>,
    /// Of them, those that were not below another call of the same function.
    pub primitive_calls: Option<u64>,
    /// How many rows there were before the writer left some out; `None` when all are here.
    pub rows_before: Option<u64>,
    /// By what rule the writer left rows out, as it spells it (`0.2`, `20`); empty when all are here.
    pub restriction: String,
    /// The writer rounded times to multiples of this, in seconds; `None` for as many digits as a
    /// float has, or when it rounded to a number of digits.
    pub rounded_to_s: Option<f64>,
    /// The rows, in the file's order.
    pub rows: Vec<ProfileRow>,
}

/// One function, action or operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRow {
    /// Its name. Functions of C have the text that `cProfile` gives them, in `<` and `>`.
    pub name: Arc<str>,
    /// The source file; `~` for functions of C, empty for what is no function.
    pub file: Arc<str>,
    /// Line in that file; 0 for none.
    pub line: u32,
    /// How often; `None` when the writer does not say.
    pub calls: Option<u64>,
    /// Of them, those that were not below another call of the same.
    pub primitive_calls: Option<u64>,
    /// Seconds from begin to end, of the outermost calls.
    pub total_s: Option<f64>,
    /// Seconds in the function itself.
    pub self_s: Option<f64>,
    /// Seconds of a call on average, where the writer says it (of functions, of a primitive call).
    pub mean_s: Option<f64>,
    /// Seconds of a call in the function itself on average, where the writer says it.
    pub self_mean_s: Option<f64>,
    /// Share of the whole in percent, where the writer says it.
    pub percent: Option<f64>,
    /// Who called it.
    pub callers: Vec<ProfileCaller>,
}

/// Calls of one function by another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileCaller {
    /// Index of the caller among the profile's rows.
    pub row: u32,
    /// How often.
    pub calls: u64,
    /// Of them, those that were not below another call of the same by the same.
    pub primitive_calls: u64,
    /// Seconds from begin to end.
    pub total_s: f64,
    /// Seconds in the called function itself.
    pub self_s: f64,
}
