//! Words that single programs use in Chrome JSON: `torch` for PyTorch, JAX, Neuron and Chrome, and
//! `stepscope` for what our own writer adds.

pub(crate) mod stepscope;
pub(crate) mod torch;
