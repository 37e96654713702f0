"""`stepscope run` on programs of torch and JAX that know nothing of it."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import stepscope

TORCH = """\
    import torch
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.ones(8, 16)).square().mean().backward()
        optimizer.step()
    print("done")
    """
JAX = """\
    import sys
    import jax
    import jax.numpy as jnp

    @jax.jit
    def advance(x):
        return jnp.tanh(x @ x).sum()

    x = jnp.ones((32, 32))
    # The profiler starts with the first backend: this goes on until it records.
    from jax._src.lib import _profiler
    while not _profiler.TraceMe.is_enabled():
        advance(x).block_until_ready()
    for _ in range(10):
        advance(x).block_until_ready()
    jax.profiler.start_trace(sys.argv[1])
    advance(x).block_until_ready()
    jax.profiler.stop_trace()
    print("done")
    """
RANKS = """\
    import torch
    import torch.distributed as distributed
    distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
    distributed.destroy_process_group()
    """


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.logs = self.folder / "logs"

    def run_program(self, code, *launcher, arguments=()):
        program = self.folder / "program.py"
        program.write_text(textwrap.dedent(code))
        command = [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, "--"]
        done = subprocess.run(
            [*command, sys.executable, *launcher, program, *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "JAX_PLATFORMS": "cpu"},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def names(self):
        """Names of all slices of the only run."""
        (run,) = stepscope.open(self.logs)
        return {slice.name for track in run.tracks for slice in track.slices}

    def test_torch_program_has_operators_and_derived_steps(self):
        done = self.run_program(TORCH)
        self.assertEqual(done.stdout, "done\n")
        names = self.names()
        self.assertTrue({"aten::linear", "step (derived)"} <= names, names)
        self.assertIn("Derived steps take ", done.stderr)

    def test_jax_program_has_events_of_xla_and_its_own_profile(self):
        done = self.run_program(JAX, arguments=[self.folder / "own"])
        self.assertEqual(done.stdout, "done\n", done.stderr)
        self.assertTrue(list((self.folder / "own").rglob("*.xplane.pb")))
        self.assertIn("PjitFunction(advance)", self.names())

    def test_ranks_of_torchrun_are_one_run(self):
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        self.run_program(RANKS, "-m", "torch.distributed.run", "--nproc-per-node=2", *rendezvous)
        files = sorted(path.name for path in self.logs.rglob("*.xplane.pb"))
        self.assertEqual(len(files), 2, files)
        self.assertTrue(files[0].endswith("_rank0.xplane.pb"), files)
        self.assertEqual(len({path.parent for path in self.logs.rglob("*.xplane.pb")}), 1)


if __name__ == "__main__":
    unittest.main()
