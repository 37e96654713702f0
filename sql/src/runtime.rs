//! The threads that run queries.

use std::io;

use tokio::runtime::Runtime;

/// Most threads that wait for files.
const BLOCKING_THREADS: usize = 4;

/// Creates the threads.
pub fn runtime() -> io::Result<Runtime> {
    // A query that computes an analysis occupies a thread: timers need another one.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(2))
        .thread_name("sql")
        // They read files. Each reserves a stack, which counts towards the limit of memory.
        .max_blocking_threads(BLOCKING_THREADS)
        // Deep expressions are planned recursively.
        .thread_stack_size(128 << 20)
        .enable_all()
        .build()
}
