"""`stepscope run` on programs of torch and JAX that know nothing of it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import stepscope
from stepscope.recording._sources import STOP

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
TOGGLED = """\
    import signal
    import time
    import stepscope
    import torch
    from stepscope.recording._recorder import recorder
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.ones(8, 16)).square().mean().backward()
        optimizer.step()

    step()
    signal.raise_signal(signal.SIGUSR2)
    # Kineto records from one of these steps on.
    while not recorder.session.sources._running:
        step()
    for _ in range(10):
        step()
    signal.raise_signal(signal.SIGUSR2)
    while stepscope.is_recording():
        time.sleep(0.001)
    """
JIT = """\
    import jax
    import jax.numpy as jnp

    @jax.jit
    def initialise(key):
        return jax.random.normal(key, (8, 8))

    @jax.jit
    def train_step(weights, batch):
        return weights - 0.1 * jax.grad(lambda weights: jnp.tanh(batch @ weights).sum())(weights)

    weights = initialise(jax.random.key(0))
    for number in range(20):
        weights = train_step(weights, jnp.ones((8, 8)) + number)
    weights.block_until_ready()
    """
INFERENCE = """\
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    model = torch.nn.Linear(16, 16)
    for number, (batch,) in enumerate(DataLoader(TensorDataset(torch.ones(64, 16)), batch_size=4)):
        with torch.no_grad():
            model(batch)
        if number == 9:
            break
    """
LIGHTNING = """\
    import lightning.pytorch as lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(16, 1)

        def training_step(self, batch, index):
            return self.layer(batch[0]).mean()

        validation_step = training_step

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = DataLoader(TensorDataset(torch.ones(64, 16)), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accumulate_grad_batches=2, val_check_interval=5,
    )
    trainer.fit(Model(), loader, loader)
    """
OWN_TORCH = """\
    import sys
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function, schedule
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    cycle = schedule(wait=1, warmup=1, active=6)
    with profile(activities=[ProfilerActivity.CPU], schedule=cycle) as profiling:
        for _ in range(9):
            with record_function("forward"):
                loss = model(torch.ones(8, 16)).square().mean()
            loss.backward()
            optimizer.step()
            profiling.step()
    profiling.export_chrome_trace(sys.argv[1])
    """
OWN_TORCH_XLA = """\
    import sys
    import torch
    import torch_xla
    import torch_xla.debug.profiler as xp
    xp.start_trace(sys.argv[1])
    for _ in range(8):
        with torch_xla.step(), xp.Trace("forward"):
            torch.ones(8, 8, device=torch_xla.device()).exp().sum()
    xp.stop_trace()
    """
SHORT_SOURCE_TIME = """\
    import torch
    from stepscope.recording._recorder import recorder
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.ones(8, 16)).square().mean().backward()
        optimizer.step()

    while not recorder.session.gathered:
        step()
    for _ in range(50):
        step()
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

    def run_program(self, code, *launcher, arguments=(), options=()):
        program = self.folder / "program.py"
        program.write_text(textwrap.dedent(code))
        command = [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, *options, "--"]
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
        # The steps are the recorder's, the operators kineto's: both are of one thread.
        (run,) = stepscope.open(self.logs)
        (linear,) = (row for row in run.report("steps").rows if row["label"] == "aten::linear")
        self.assertEqual(linear["place"], "step thread (other track)")
        path = {row["name"] for row in run.report("critical-path").rows}
        self.assertTrue(any(name.startswith("aten::") for name in path), path)

    def test_jax_program_has_events_of_xla_and_its_own_profile(self):
        done = self.run_program(JAX, arguments=[self.folder / "own"])
        self.assertEqual(done.stdout, "done\n", done.stderr)
        self.assertTrue(list((self.folder / "own").rglob("*.xplane.pb")))
        self.assertIn("PjitFunction(advance)", self.names())
        # One call is in the program's own profile.
        (run,) = stepscope.open(self.logs)
        stops = [slice for track in run.tracks for slice in track.slices if slice.name == STOP]
        self.assertEqual(len(stops), 2)

    def test_own_profile_of_torch_is_taken_in(self):
        own = self.folder / "own.json"
        done = self.run_program(OWN_TORCH, arguments=[own])
        self.assertEqual(json.loads(own.read_text())["traceName"], str(own))
        names = self.names()
        self.assertTrue({"forward", "aten::linear", "ProfilerStep#3"} <= names, names)
        self.assertNotIn("warning: cannot", done.stderr.replace("warning: cannot take ", ""))

    def test_own_profile_of_torch_xla_is_taken_in(self):
        done = self.run_program(OWN_TORCH_XLA, arguments=[self.folder / "own"])
        self.assertTrue(list((self.folder / "own").rglob("*.xplane.pb")), done.stderr)
        self.assertIn("forward", self.names())

    def test_steps_after_the_time_of_the_sources_only_have_lengths(self):
        self.run_program(SHORT_SOURCE_TIME, options=["--source-time", "1s"])
        (run,) = stepscope.open(self.logs)
        report = run.report("steps")
        (note,) = (str(note) for note in report.notes if "lie outside of the time" in str(note))
        outside, all_steps = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", note)[:2])
        self.assertTrue(50 <= outside < all_steps, note)

    def derived_from(self):
        """What the derived steps of the only run are derived from, and their number."""
        (run,) = stepscope.open(self.logs)
        steps = [slice for track in run.tracks for slice in track.slices if slice.name == "step (derived)"]
        (source,) = {step.args["derived_from"] for step in steps}
        return source, len(steps)

    def test_signal_records_operators_too(self):
        done = self.run_program(TOGGLED, options=["--signal", "USR2"])
        names = self.names()
        self.assertTrue({"aten::linear", "step (derived)"} <= names, (names, done.stderr))
        self.assertNotIn("warning: cannot stop", done.stderr)

    def test_calls_of_a_jitted_function_are_steps(self):
        self.run_program(JIT)
        source, count = self.derived_from()
        # Calls that compile may not reach the hook, and the first three begin no step.
        self.assertEqual(source, "jit")
        self.assertIn(count, range(14, 19))

    def test_batches_are_steps_in_inference(self):
        self.run_program(INFERENCE)
        self.assertEqual(self.derived_from(), ("data_loader", 10))

    def test_batches_of_lightning_are_steps_and_its_actions_are_labels(self):
        self.run_program(LIGHTNING)
        self.assertEqual(self.derived_from(), ("trainer", 32))
        actions = {"[pl][profile]run_training_batch", "[pl][profile][Strategy]SingleDeviceStrategy.backward"}
        self.assertLessEqual(actions, self.names())

    def test_ranks_of_torchrun_are_one_run(self):
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        self.run_program(RANKS, "-m", "torch.distributed.run", "--nproc-per-node=2", *rendezvous)
        files = sorted(path.name for path in self.logs.rglob("*.xplane.pb"))
        self.assertEqual(len(files), 2, files)
        self.assertTrue(files[0].endswith("_rank0.xplane.pb"), files)
        self.assertEqual(len({path.parent for path in self.logs.rglob("*.xplane.pb")}), 1)
        (run,) = stepscope.open(self.logs)
        linear = [track for track in run.tracks for slice in track.slices if slice.name == "aten::linear"]
        self.assertEqual(len({track.file.path for track in linear}), 2, "operators of both ranks")


if __name__ == "__main__":
    unittest.main()
