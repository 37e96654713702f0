//! The functions, settings and files of sessions on a cluster: the same for client, scheduler and executor.

use std::sync::Arc;

use ballista_core::registry::BallistaFunctionRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::session_config;
use crate::functions;
use crate::locked::{self, MemoryLimits, Reach};

/// Creates the state that the scheduler reads plans with.
pub(super) fn state(config: SessionConfig) -> SessionState {
    let builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(runtime(MemoryLimits::default()));
    let context = SessionContext::new_with_state(builder.build());
    functions::register(&context);
    context.state()
}

/// Returns the functions of executors.
pub(super) fn registry() -> BallistaFunctionRegistry {
    let context = locked::context(session_config(), MemoryLimits::default(), Reach::Nothing);
    functions::register(&context);
    let state = context.state();
    BallistaFunctionRegistry {
        scalar_functions: state.scalar_functions().clone(),
        aggregate_functions: state.aggregate_functions().clone(),
        window_functions: state.window_functions().clone(),
        ..BallistaFunctionRegistry::default()
    }
}

/// Creates what operators on a cluster reach: every dataset of the machine.
pub(super) fn runtime(memory: MemoryLimits) -> Arc<RuntimeEnv> {
    locked::runtime(memory, Reach::EveryDataset)
}
