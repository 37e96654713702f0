//! A program as text, and its graph as DOT text and as SVG.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use stepscope_hlo::graph::{DrawnNodeKind, NodeClass, module_text, write_dot, write_svg};

use super::{DrawnGraph, TimedProgram};
use crate::problem::Problem;
use crate::reply::{Encode, RunRequest, about_run};
use crate::state::State;

struct TextFile(String);

impl Encode for TextFile {
    const MEDIA_TYPE: &'static str = "text/plain; charset=utf-8";

    fn encode(&self) -> Result<Vec<u8>, Problem> {
        Ok(self.0.clone().into_bytes())
    }
}

struct SvgFile(String);

impl Encode for SvgFile {
    const MEDIA_TYPE: &'static str = "image/svg+xml";

    fn encode(&self) -> Result<Vec<u8>, Problem> {
        Ok(self.0.clone().into_bytes())
    }
}

/// `GET /runs/{run}/graph/text`
pub(in crate::routes) async fn text(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    let cache = Arc::clone(&state.op_times);
    about_run(&state, request, move |view, params, cancel| {
        let timed = TimedProgram::new(&cache, view, params, cancel)?;
        let mut text = String::new();
        let Ok(()) = module_text(&timed.program.module, &mut |part| {
            text.push_str(part);
            Ok::<(), Infallible>(())
        });
        Ok(TextFile(text))
    })
    .await
}

/// `GET /runs/{run}/graph/dot`
pub(in crate::routes) async fn dot(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    let cache = Arc::clone(&state.op_times);
    about_run(&state, request, move |view, params, cancel| {
        let timed = TimedProgram::new(&cache, view, params, cancel)?;
        let drawn = DrawnGraph::new(&timed, params)?;
        let text = write_dot(&drawn.graph, &timed.name, &drawn.details);
        Ok(TextFile(text))
    })
    .await
}

/// `GET /runs/{run}/graph/svg`
pub(in crate::routes) async fn svg(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    let cache = Arc::clone(&state.op_times);
    about_run(&state, request, move |view, params, cancel| {
        let timed = TimedProgram::new(&cache, view, params, cancel)?;
        let drawn = DrawnGraph::new(&timed, params)?;
        let module = &timed.program.module;
        let fills = drawn.graph.nodes.iter().map(|node| match node.kind {
            DrawnNodeKind::Instruction(at) => NodeClass::new(module.instruction(at)).fill(),
            _ => "#ffffff",
        });
        let fills: Vec<&str> = fills.collect();
        let text = write_svg(&drawn.graph, &drawn.drawing, &drawn.details, &fills);
        Ok(SvgFile(text))
    })
    .await
}
