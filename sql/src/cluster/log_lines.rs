//! The log of a process of a cluster.

use log::{Level, Log, Metadata, Record};
use stepscope_model::clock::unix_now_ns;

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    #[allow(clippy::print_stderr, reason = "the log of a command")]
    fn log(&self, record: &Record<'_>) {
        let text = record.args().to_string();
        // Executors report no measurements on purpose (`stages`).
        if self.enabled(record.metadata()) && !text.starts_with("The metrics for stage") {
            let seconds = unix_now_ns() / 1_000_000_000;
            eprintln!("{seconds} {}: {text}", record.level());
        }
    }

    fn flush(&self) {}
}

/// Writes warnings and errors to stderr from now on, in detail what is done, too. Each line begins with Unix time in
/// seconds.
pub fn log_to_stderr(detailed: bool) {
    let level = if detailed { Level::Info } else { Level::Warn };
    // Set already: the first call decides.
    if log::set_boxed_logger(Box::new(Stderr)).is_ok() {
        log::set_max_level(level.to_level_filter());
    }
}
