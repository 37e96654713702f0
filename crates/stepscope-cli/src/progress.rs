//! A progress bar for operations longer than a second, only on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stepscope_engine::{Engine, EngineEvent};
use stepscope_model::ReadContext;

/// Delay before the bar appears.
const QUIET: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(100);

/// Shows the progress of a read until it is dropped.
pub struct Progress {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Watches `context`; `expected_bytes` is the approximate number of bytes at the end.
    pub fn start(context: &Arc<ReadContext>, expected_bytes: u64) -> Self {
        Self::watch(context, move |context| {
            let bar =
                ProgressBar::with_draw_target(Some(expected_bytes), ProgressDrawTarget::stderr());
            bar.set_style(style().clone());
            bar.set_message("reading");
            let context = Arc::clone(context);
            let show = move |bar: &ProgressBar| {
                let read = context.read_bytes();
                if read >= expected_bytes {
                    bar.set_message("indexing");
                }
                bar.set_position(read.min(expected_bytes));
            };
            (bar, Box::new(show))
        })
    }

    /// Watches `context` while files are copied from or to a store.
    pub fn copying(context: &Arc<ReadContext>) -> Self {
        Self::watch(context, |context| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(
                ProgressStyle::with_template("  copying {bytes}  {elapsed}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            let context = Arc::clone(context);
            let show = move |bar: &ProgressBar| bar.set_position(context.read_bytes());
            (bar, Box::new(show))
        })
    }

    /// Shows the bar that `make` returns with the function that moves it, after a while and only on a terminal.
    fn watch(
        context: &Arc<ReadContext>,
        make: impl FnOnce(&Arc<ReadContext>) -> (ProgressBar, Box<dyn Fn(&ProgressBar)>)
        + Send
        + 'static,
    ) -> Self {
        let idle = Self {
            stop: None,
            thread: None,
        };
        if !std::io::stderr().is_terminal() {
            return idle;
        }
        let context = Arc::clone(context);
        let (stop, stopped) = sync_channel(0);
        let work = move || {
            if stopped.recv_timeout(QUIET) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let (bar, show) = make(&context);
            loop {
                show(&bar);
                if stopped.recv_timeout(BETWEEN) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            bar.finish_and_clear();
        };
        let thread = std::thread::Builder::new()
            .name("stepscope-bar".to_owned())
            .spawn(work);
        match thread {
            Ok(thread) => Self {
                stop: Some(stop),
                thread: Some(thread),
            },
            // A missing bar must not make the command fail.
            Err(_) => idle,
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn style() -> &'static ProgressStyle {
    static STYLE: OnceLock<ProgressStyle> = OnceLock::new();
    STYLE.get_or_init(|| {
        ProgressStyle::with_template(
            "{msg:>9} [{bar:40}] {percent:>3} %  {bytes} of about {total_bytes}  {elapsed}",
        )
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
    })
}

/// Runs `work` with an engine and shows the progress of its import.
pub fn with_engine_progress<T>(engine: &Engine, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let events = engine.subscribe();
    let (stop, stopped) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let draw = move || {
            let begun = Instant::now();
            let mut bar = None;
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                let Ok(event) = events.recv_timeout(BETWEEN) else {
                    continue;
                };
                let EngineEvent::Progress { phase, done, .. } = event else {
                    continue;
                };
                if begun.elapsed() < QUIET {
                    continue;
                }
                let bar = bar.get_or_insert_with(|| {
                    let bar =
                        ProgressBar::with_draw_target(Some(1_000), ProgressDrawTarget::stderr());
                    bar.set_style(
                        ProgressStyle::with_template(
                            "{msg:>9} [{bar:40}] {percent:>3} %  {elapsed}",
                        )
                        .unwrap_or_else(|_| ProgressStyle::default_bar())
                        .progress_chars("=> "),
                    );
                    bar
                });
                bar.set_message(phase.to_lowercase());
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "a share of one, times a thousand"
                )]
                bar.set_position((done.clamp(0.0, 1.0) * 1_000.0) as u64);
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        };
        // Without the thread there is no bar; the work continues.
        let _ = std::thread::Builder::new()
            .name("stepscope-bar".to_owned())
            .spawn_scoped(scope, draw);
        let outcome = work();
        drop(stop);
        outcome
    })
}
