"""Internal: code that fits stepscope to Lightning, PyTorch, PyTorch/XLA and TensorBoard."""
