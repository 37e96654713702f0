//! Dialects of Chrome JSON: `torch` for PyTorch, JAX, Neuron and Chrome, and `stepscope` for the
//! extensions that our writer adds.

pub(crate) mod stepscope;
pub(crate) mod torch;
