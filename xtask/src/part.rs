//! Parts of a command: each is *ok*, *failed*, or *not run* with the reason; all are listed at the
//! end.

use std::time::Instant;

use anyhow::{Result, bail};

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
    rows: Vec<(String, Result<Outcome>, f64)>,
    only: Vec<String>,
}

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
        if !self.only.is_empty() && !self.only.iter().any(|text| name.contains(text.as_str())) {
            return;
        }
        println!("\n== {name}");
        let started = Instant::now();
        let outcome = part();
        if let Err(error) = &outcome {
            println!("{name}: {error:#}");
        }
        self.rows
            .push((name.to_owned(), outcome, started.elapsed().as_secs_f64()));
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
            bail!("no part has '{text}' in its name");
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
