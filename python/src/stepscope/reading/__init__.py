"""Internal: what `stepscope.read`, `ProfileData` and ``torch.profiler``'s tables are built from."""
