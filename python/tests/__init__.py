"""Tests of the package: `cargo xtask test`, part "python package", runs them."""
