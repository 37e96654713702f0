//! Handles Ctrl+C without ending the process.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Calls `each` on a named thread for each Ctrl+C from now on, with 1 for the first. Ctrl+C no
/// longer ends the process.
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
