//! `stepscope mcp`: lets an AI assistant ask about runs, over stdin and stdout.

use stepscope_engine::Engine;
use stepscope_mcp::serve_stdio;

use crate::args;
use crate::error::CliError;
use crate::view::engine_options;

/// Runs the command.
pub fn run(asked: &args::Mcp) -> Result<(), CliError> {
    crate::heaps::limit();
    let engine = Engine::new(engine_options(&asked.paths))?;
    engine.fill_list();
    let ended = serve_stdio(std::sync::Arc::clone(&engine));
    // The most recent imports are not in the cache yet.
    engine.flush_cache();
    ended.map_err(|error| {
        CliError::failed(format!(
            "cannot serve the assistant: {error}\nhelp: an assistant starts this command and speaks the Model Context \
             Protocol; see docs/guide/assistants.md"
        ))
    })
}
