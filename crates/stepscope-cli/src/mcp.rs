//! `stepscope mcp`: lets an AI assistant ask about runs, over stdin and stdout.

use std::sync::Arc;

use stepscope_engine::Engine;
use stepscope_mcp::{McpServer, serve_stdio};

use crate::args;
use crate::error::CliError;
use crate::view::engine_options;

/// Runs the command.
pub fn run(asked: &args::Mcp) -> Result<(), CliError> {
    crate::heaps::limit();
    let engine = Engine::new(engine_options(&asked.paths))?;
    engine.fill_list();
    let server = McpServer::new(Arc::clone(&engine), asked.allow_capture.clone());
    let ended = serve_stdio(&server);
    // The most recent imports are not in the cache yet.
    engine.flush_cache();
    ended.map_err(|error| {
        CliError::failed(format!(
            "cannot serve the assistant: {error}\nhelp: an assistant starts this command and speaks the Model Context \
             Protocol; see docs/guide/assistants.md"
        ))
    })
}
