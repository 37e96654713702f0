//! The `stepscope` command.
