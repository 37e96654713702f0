//! Error text of steps that are selected by number.

use stepscope_analysis::steps::NoSuchSteps;

/// Returns the cause in words: the requested numbers, and those that the run has.
pub fn no_such_steps(error: &NoSuchSteps) -> String {
    let requested = match (error.requested.start(), error.requested.end()) {
        (from, last) if from == last => format!("no step {from} in this run"),
        (from, &i64::MAX) => format!("no step from {from} on in this run"),
        (from, last) => format!("none of the steps {from}-{last} in this run"),
    };
    let available = match error.available {
        Some((low, high)) if low == high => format!("its only one is {low}"),
        Some((low, high)) => format!("it has {low}-{high}"),
        None => "it has none; 'stepscope report PATH steps' shows how to mark them".to_owned(),
    };
    format!("{requested}, {available}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_names_the_requested_and_the_available_steps() {
        let text = |requested, available| {
            no_such_steps(&NoSuchSteps {
                requested,
                available,
            })
        };
        assert_eq!(
            text(99..=99, Some((0, 19))),
            "no step 99 in this run, it has 0-19"
        );
        assert_eq!(
            text(30..=i64::MAX, Some((4, 4))),
            "no step from 30 on in this run, its only one is 4"
        );
        assert_eq!(
            text(3..=5, None),
            "none of the steps 3-5 in this run, it has none; 'stepscope report PATH steps' shows how to mark them"
        );
    }
}
