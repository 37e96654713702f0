//! Parts of a command: each is *ok*, *failed*, or *not run* with the reason; all are listed at the
//! end.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::shell;

/// What a part does.
pub(crate) type PartFunction = fn() -> Result<Outcome>;

/// Result of a part.
pub(crate) enum Outcome {
    /// The part ran without an error.
    Ok,
    /// Like `Ok`, but tests of the part could not run here: one line for each reason.
    OkExcept(Vec<String>),
    /// The part could not run here; the text has the cause and the remedy.
    NotRun(String),
}

/// Collects the results of parts.
#[derive(Default)]
pub(crate) struct Parts {
    rows: Vec<Row>,
    only: Vec<String>,
}

/// Name, result, and seconds.
type Row = (String, Result<Outcome>, f64);

impl Parts {
    /// Creates a collection that runs the parts whose name contains one of the texts; all of them
    /// when there are none.
    pub(crate) fn only(texts: Vec<String>) -> Self {
        Self {
            rows: Vec::new(),
            only: texts,
        }
    }

    /// Runs one part, also after earlier ones have failed.
    pub(crate) fn run(&mut self, name: &str, part: impl FnOnce() -> Result<Outcome>) {
        if self.is_wanted(name) {
            self.rows.push(timed(name, part));
        }
    }

    /// Runs two lists of parts side by side, each in its order. Parts that often wait take little longer so than the
    /// longer list alone.
    pub(crate) fn run_side_by_side(&mut self, lists: [&[(&str, PartFunction)]; 2]) {
        let [first, second] = lists.map(|list| {
            let wanted = list.iter().filter(|(name, _)| self.is_wanted(name));
            wanted.copied().collect::<Vec<_>>()
        });
        if first.is_empty() || second.is_empty() {
            for (name, part) in first.into_iter().chain(second) {
                self.run(name, part);
            }
            return;
        }
        let run = |list: Vec<(&str, PartFunction)>| -> Vec<Row> {
            shell::print_at_end();
            let list = list.into_iter();
            list.map(|(name, part)| timed(name, part)).collect()
        };
        std::thread::scope(|scope| {
            let threads = [first, second].map(|list| scope.spawn(|| run(list)));
            for thread in threads {
                match thread.join() {
                    Ok(rows) => self.rows.extend(rows),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }

    /// Prints one line per part; returns an error when one failed.
    pub(crate) fn finish(self) -> Result<()> {
        let is_unknown = |text: &&String| {
            !self
                .rows
                .iter()
                .any(|(name, ..)| name.contains(text.as_str()))
        };
        if let Some(text) = self.only.iter().find(is_unknown) {
            bail!("cannot run '{text}': no part has it in its name");
        }
        println!("\nresult");
        let mut failed = Vec::new();
        for (name, outcome, seconds) in &self.rows {
            let mut not_run: &[String] = &[];
            let (word, reason) = match outcome {
                Ok(Outcome::Ok) => ("ok", String::new()),
                Ok(Outcome::OkExcept(reasons)) => {
                    not_run = reasons;
                    ("ok", String::new())
                }
                Ok(Outcome::NotRun(why)) => ("not run", why.clone()),
                Err(error) => {
                    failed.push(name.clone());
                    (
                        "FAILED",
                        format!("{error:#}").lines().next().unwrap_or("").to_owned(),
                    )
                }
            };
            println!("  {name:<22} {word:<8} {seconds:>6.1} s  {reason}");
            for reason in not_run {
                println!("    not run: {reason}");
            }
        }
        if !failed.is_empty() {
            bail!("{} failed", failed.join(", "));
        }
        Ok(())
    }
}

fn timed(name: &str, part: impl FnOnce() -> Result<Outcome>) -> Row {
    println!("\n== {name}");
    let started = Instant::now();
    let outcome = part();
    if let Err(error) = &outcome {
        println!("{name}: {error:#}");
    }
    let seconds = started.elapsed().as_secs_f64();
    (name.to_owned(), outcome, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_side_by_side_keep_their_order_and_their_failures() {
        let ok: PartFunction = || Ok(Outcome::Ok);
        let fails: PartFunction = || bail!("broken");
        for (only, expected) in [
            (vec![], vec!["a1", "a2", "b1"]),
            (vec!["b".to_owned()], vec!["b1"]),
        ] {
            let mut parts = Parts::only(only);
            parts.run_side_by_side([&[("a1", ok), ("a2", fails)], &[("b1", ok)]]);
            let names: Vec<&str> = parts.rows.iter().map(|row| row.0.as_str()).collect();
            assert_eq!(names, expected);
            assert_eq!(parts.finish().is_err(), expected.contains(&"a2"));
        }
    }
}
