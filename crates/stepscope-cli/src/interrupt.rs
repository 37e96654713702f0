//! CTRL+C as a wish, not as an end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Calls `each` for each CTRL+C from now on, from a named thread, with 1 for the first. CTRL+C does
/// not end the process any more.
pub fn on_each(each: impl Fn(u32) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let mut presses = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    let listen = move || {
        runtime.block_on(async {
            let mut times = 0;
            while presses.recv().await.is_some() {
                times += 1;
                each(times);
            }
        });
    };
    std::thread::Builder::new()
        .name("stepscope-interrupt".to_owned())
        .spawn(listen)?;
    Ok(())
}
