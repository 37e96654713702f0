"""Programs that are slow for one reason, known by construction: the first finding names it."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

# The command as it was built last; without it, that of the package.
BINARY = os.environ.get("STEPSCOPE_BIN")
COMMAND = [BINARY] if BINARY else [sys.executable, "-m", "stepscope"]

TORCH = """
import sys, time
from functools import partial
import torch
import recorders
from recorders import STEPS

torch.set_num_threads(1)
torch.manual_seed(0)

def training(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    def train(batch):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return train
"""

# A batch takes 40 ms to load and less than 1 ms to train on; in the same process, or in two others.
LOADER = """
class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * STEPS

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((64,), float(index))

loader = torch.utils.data.DataLoader(Images(), batch_size=8)
two_workers = torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=2)
train = training(torch.nn.Linear(64, 8))

def load_within_steps(loader, mark):
    batches = iter(loader)
    for number in range(STEPS):
        with mark(number):
            train(next(batches))
        yield

def load_between_steps(mark):
    for number, batch in enumerate(loader):
        with mark(number):
            train(batch)
        yield

train(torch.zeros(8, 64))
loops = {
    "within_steps": (partial(load_within_steps, loader), ()),
    "between_steps": (load_between_steps, ()),
    # Two batches come at once: every second step waits.
    "two_workers": (partial(load_within_steps, two_workers), range(STEPS)),
}
recorders.record(loops, recorders.TORCH)
"""

# Rank 1 is 60 ms late in each step; all else takes a few milliseconds.
STRAGGLER = """
import os
import torch.distributed as dist

rank = int(os.environ["RANK"])
store = recorders.FOLDER / "store"
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=3)
train = training(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 64)))

def prepare():
    if rank == 1:
        time.sleep(0.06)
    return torch.ones(32, 256)

def steps(mark):
    dist.barrier()
    for number in range(STEPS):
        with mark(number):
            train(prepare())
        yield

def agree(decision):
    decisions = torch.tensor(float(decision))
    dist.all_reduce(decisions)
    return bool(decisions > 0)

for _ in range(3):
    train(torch.ones(32, 256))
recorders.record({"slow_rank": (steps, ())}, recorders.TORCH, agree=agree)
dist.destroy_process_group()
"""

# Matrix products take the time, and the results are read one by one, from memory of the host; or the
# collection of garbage among many objects takes at least twenty times as long as a product.
HOST = """
import gc

weight, small = torch.randn(768, 768), torch.randn(64, 64)
losses = []
# Objects of frameworks are left out.
gc.freeze()
objects = [[number] for number in range(200_000)]

def read_items():
    out = weight
    for _ in range(4):
        out = torch.tanh(out @ weight)
    row = out.mean(dim=0)
    for column in range(40):
        losses.append(row[column].item())

def collect_garbage():
    small @ small
    gc.collect()

def steps(train, mark):
    for number in range(STEPS):
        with mark(number):
            train()
        yield

read_items()
loops = {"items": (partial(steps, read_items), ()), "garbage": (partial(steps, collect_garbage), ())}
recorders.record(loops, recorders.TORCH)
"""

# Each step keeps 4 MiB that torch.relu allocates; the time goes into a product.
LEAK = """
weight = torch.randn(1024, 1024)
history = []

def forward(batch):
    hidden = batch @ weight
    return torch.relu(hidden)

def train():
    out = forward(weight)
    history.append(out)
    return float(out.sum())

def steps(mark):
    history.clear()
    for number in range(STEPS):
        with mark(number):
            train()
        yield

train()
with_memory = {
    name: partial(recorders.TORCH[name], profile_memory=True)
    for name in ("torch_profiler", "stepscope_torch")
}
recorders.record({"leak": (steps, ())}, {**recorders.TORCH, **with_memory})
"""

# Batches are rows of a tensor; forward and backward of 2048 x 2048 weights take the time.
BALANCED = """
class Rows(torch.utils.data.Dataset):
    rows = torch.randn(32 * STEPS, 512)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

loader = torch.utils.data.DataLoader(Rows(), batch_size=32)
train = training(torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU()
))

def steps(mark):
    batches = iter(loader)
    for number in range(STEPS):
        with mark(number):
            train(next(batches))
        yield

for batch in loader:
    train(batch)
recorders.record({"balanced": (steps, ())}, recorders.TORCH)
"""

# Another shape compiles the function again, which takes at least twenty times as long as a step.
COMPILED = """
@torch.compile(dynamic=False, backend="eager")
def loss_of(batch):
    out = batch
    for _ in range(6):
        out = torch.tanh(out @ weight)
    return out.square().mean()

weight = torch.randn(64, 64, requires_grad=True)

def steps(mark):
    torch._dynamo.reset()
    loss_of(torch.ones(64, 64)).backward()
    for number in range(STEPS):
        rows = 65 + number if number < 6 else 64
        with mark(number):
            loss_of(torch.ones(rows, 64)).backward()
        yield

for _ in steps(lambda number: torch.profiler.record_function("warm-up")):
    pass
chosen = ("torch_profiler", "session", "session_without_calls")
recorders.record({"compiled": (steps, range(6))}, {name: recorders.TORCH[name] for name in chosen})
"""

# A batch of another shape compiles the step again: in each step, in two of them, in none.
JAX = """
from functools import partial
import itertools
import jax, jax.numpy as jnp, numpy as np
import recorders
from recorders import STEPS

@jax.jit
def train_step(weight, batch):
    def loss_of(weight):
        out = batch
        for _ in range(4):
            out = jnp.tanh(out @ weight)
        return jnp.square(out).mean()
    return weight - 1e-3 * jax.grad(loss_of)(weight)

initial = jnp.full((256, 256), 0.01, jnp.float32)
new_rows = itertools.count(65)

def steps(rows, long, mark):
    weight = initial
    for number in range(STEPS):
        batch = np.ones((next(new_rows) if number in long else rows, 256), np.float32)
        with mark(number):
            weight = train_step(weight, batch).block_until_ready()
        yield

for rows in (64, 2048):
    train_step(initial, np.ones((rows, 256), np.float32)).block_until_ready()
loops = {"every_step": (64, range(STEPS)), "two_steps": (64, (5, 8)), "no_step": (2048, ())}
recorders.record(
    {name: (partial(steps, rows, long), long) for name, (rows, long) in loops.items()}, recorders.JAX
)
"""

# Recorders that know calls of Python functions.
RECORD_CALLS = {"session", "stepscope_torch"}
# Operators that compute a matrix product, and those of torch and autograd that call them.
PRODUCT = r"^aten::(mm|addmm|matmul|linear)$|^AddmmBackward0$|: AddmmBackward0$"
# What a program can wait for besides its own computation.
WAITS = {
    *(
        "input_bound",
        "synchronization",
        "exposed_communication",
        "exposed_copy",
        "straggler",
        "load_imbalance",
    ),
    *("launch_bound", "small_kernels", "host_bound", "idle_unknown", "pipeline_bubble", "misplaced_op"),
    *("allocator_thrash", "fragmentation", "compilation", "profiler_overhead"),
}


def reported(path, kind, *options):
    """The rows of a report."""
    done = subprocess.run(
        [*COMMAND, "report", str(path), kind, "--format", "json", "--no-cache", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["rows"]


class Recording(NamedTuple):
    """The folder and the findings of a recording; not steady when each attempt has a slow step."""

    path: Path
    findings: list
    is_steady: bool


def recorded(test, code, ranks=1):
    """Run a program for a test or its class: its recordings by name."""
    folder = tempfile.TemporaryDirectory()
    add_cleanup = getattr(test, "addClassCleanup" if isinstance(test, type) else "addCleanup")
    add_cleanup(folder.cleanup)
    program = Path(folder.name) / "train.py"
    program.write_text(code)
    runs = Path(folder.name) / "runs"
    runs.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_PLATFORMS": "cpu",
        "WORLD_SIZE": str(ranks),
        # Nothing listens there: the ranks meet at a file, and this names their job.
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), str(runs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    add_cleanup(lambda: [process.kill() for process in processes if process.poll() is None])
    ended = [process.communicate() for process in processes]
    for process, (output, errors) in zip(processes, ended, strict=True):
        if process.returncode != 0:
            raise AssertionError(output + errors)
    of_ranks = [json.loads(output.splitlines()[-1]) for output, _errors in ended]
    return {
        name: Recording(
            path=runs / name,
            findings=findings(runs / name, [of_rank["lengths"][name] for of_rank in of_ranks]),
            is_steady=all(name not in of_rank["unsteady"] for of_rank in of_ranks),
        )
        for name in of_ranks[0]["lengths"]
    }


def plain(parts):
    """Join the parts of a sentence."""
    return "".join(part["text"] for part in parts)


def findings(path, lengths):
    """
    The findings of a recording, of which the program's own clock gives the lengths of the steps of each rank.

    Steps of a busy machine differ: where they do by that clock, too, a finding that says so is right and
    tells nothing about the cause.
    """
    found = reported(path, "findings")
    if any(max(of_rank) > 1.2 * statistics.median(of_rank) for of_rank in lengths):
        found = [row for row in found if row["kind"] != "outlier_steps"]
    return found


class CausesTest(unittest.TestCase):
    def assert_first(self, recording, kind, *patterns):
        """
        The first finding is of this kind, and names something for each pattern; the finding.

        The subtest is skipped when the machine, too, made steps slow.
        """
        if not recording.is_steady:
            self.skipTest("a step took longer than usual in every attempt to record the program")
        self.assertTrue(recording.findings, "no findings")
        first = recording.findings[0]
        self.assertEqual(first["kind"], kind, first)
        for pattern in patterns:
            named = [name for name in first["where"] or () if re.search(pattern, name)]
            self.assertTrue(named, f"{pattern!r} is not named: {first}")
        return first


class TorchPrograms(CausesTest):
    def test_slow_data_set_is_found(self):
        for name, recording in recorded(self, TORCH + LOADER).items():
            with self.subTest(name):
                loop, recorder = name.split("/")
                in_process = loop != "two_workers"
                first = self.assert_first(recording, "input_bound", r"DataLoader|dataloader\.py|__getitem__")
                self.assertEqual("num_workers" in first["advice"], in_process, first)
                if in_process and recorder in RECORD_CALLS:
                    self.assert_first(recording, "input_bound", r"train\.py.*__getitem__")

    def test_slow_rank_of_three_is_found(self):
        for name, recording in recorded(self, TORCH + STRAGGLER, ranks=3).items():
            with self.subTest(name):
                first = self.assert_first(recording, "straggler", r"^rank 1$")
                self.assertEqual(first["confidence"], "high")
                self.assertEqual(
                    {row["rank"] for row in reported(recording.path, "ranks")},
                    {f"rank {n}" for n in range(3)},
                )

    def test_recompilation_without_dynamic_shapes_is_found(self):
        for name, recording in recorded(self, TORCH + COMPILED).items():
            with self.subTest(name):
                self.assert_first(recording, "compilation", r"dynamo")

    def test_item_calls_and_garbage_collection_are_found(self):
        recordings = recorded(self, TORCH + HOST)
        for name, recording in recordings.items():
            loop, recorder = name.split("/")
            with self.subTest(name):
                if loop == "items":
                    self.assert_first(recording, "device_bound", PRODUCT)
                    self.assertEqual(WAITS & {row["kind"] for row in recording.findings}, set())
                elif recorder in RECORD_CALLS:
                    first = self.assert_first(recording, "host_bound", r"\bcollect\b")
                    self.assertNotIn("device", plain(first["title"]))

    def test_growing_memory_is_found(self):
        for name, recording in recorded(self, TORCH + LEAK).items():
            with self.subTest(name):
                if name.startswith("leak/session"):
                    # Allocations are not recorded, so only the product can be named.
                    self.assert_first(recording, "device_bound", PRODUCT)
                    continue
                first = self.assert_first(recording, "memory_growth", r"^aten::(relu|clamp_min)$")
                self.assertIn("4.00 MiB per step", plain(first["title"]))
                if name == "leak/stepscope_torch":
                    self.assert_first(recording, "memory_growth", r"train\.py\(\d+\): forward")

    def test_balanced_loop_has_no_false_findings(self):
        for name, recording in recorded(self, TORCH + BALANCED).items():
            with self.subTest(name):
                self.assert_first(recording, "device_bound", PRODUCT)


class JaxShapes(CausesTest):
    @classmethod
    def setUpClass(cls):
        cls.recordings = recorded(cls, JAX)

    def each(self, loop):
        of_loop = {
            name: recording for name, recording in self.recordings.items() if name.startswith(f"{loop}/")
        }
        self.assertEqual(len(of_loop), 4)
        return of_loop.items()

    def test_compilation_in_every_step_is_found(self):
        for name, recording in self.each("every_step"):
            with self.subTest(name):
                self.assert_first(recording, "compilation", r"\btrain_step\b")

    def test_compilation_in_two_steps_is_found(self):
        for name, recording in self.each("two_steps"):
            with self.subTest(name):
                self.assert_first(recording, "compilation", r"\btrain_step\b", r"^step 5$", r"^step 8$")

    def test_steps_without_compilation_have_no_false_findings(self):
        for name, recording in self.each("no_step"):
            with self.subTest(name):
                first = self.assert_first(recording, "device_bound")
                operations = {row["name"] for row in reported(recording.path, "ops", "--by", "hlo")}
                self.assertIn(first["where"][0], operations | {"jit_train_step"})


if __name__ == "__main__":
    unittest.main()
