//! The threads that wait for servers, and waiting for them from any thread.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::error::{ObjectError, ObjectErrorKind};

/// First pause before a request is repeated.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// How often a waiting thread looks whether it was cancelled.
const TICK: Duration = Duration::from_millis(50);
/// Threads that wait for servers.
const THREADS: usize = 2;

/// The runtime, with the process that started it: a forked process has none of its threads. Never dropped, because a
/// runtime that is dropped waits for its threads.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

fn runtime() -> Result<Arc<Runtime>, std::io::Error> {
    let mut held = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    match held.as_ref() {
        Some((process, runtime)) if *process == own => return Ok(Arc::clone(runtime)),
        _ => std::mem::forget(held.take()),
    }
    // An application that links this crate may have chosen another one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("stepscope-objects")
        .enable_all()
        .build()?;
    let runtime = Arc::new(runtime);
    *held = Some((own, Arc::clone(&runtime)));
    Ok(runtime)
}

/// Runs `work` and waits for it. `is_cancelled` is asked regularly; the work ends when it returns true.
pub(crate) fn wait<T: Send + 'static>(
    url: &str,
    is_cancelled: &dyn Fn() -> bool,
    work: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<T, ObjectError> {
    let failed = |reason: String| ObjectError::new(ObjectErrorKind::Other, url, reason);
    let runtime =
        runtime().map_err(|error| failed(format!("no thread can be started: {error}")))?;
    let (send, answer) = sync_channel(1);
    let task = runtime.spawn(async move {
        let _ = send.send(work.await);
    });
    loop {
        match answer.recv_timeout(TICK) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(
                    "the request failed: this is a bug of stepscope".to_owned(),
                ));
            }
            Err(RecvTimeoutError::Timeout) if is_cancelled() => {
                task.abort();
                return Err(ObjectError::cancelled(url));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Returns a state for objects whose server tells none: the same for as long as the process lives.
pub(crate) fn process_state() -> String {
    static STATE: OnceLock<String> = OnceLock::new();
    let new = || {
        #[allow(
            clippy::disallowed_methods,
            reason = "it distinguishes processes of the same number"
        )]
        let now = std::time::SystemTime::now();
        let since = now
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        format!("process {} {}", std::process::id(), since.as_nanos())
    };
    STATE.get_or_init(new).clone()
}
