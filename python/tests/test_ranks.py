"""Distributed programs: whose place is found, who records, and which files become one run."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import xspace
from recorded import files

import stepscope
from stepscope.recording import _ranks
from stepscope.recording._ranks import Ranks

LAUNCHERS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "SLURM_",
    "JAX_",
    "MASTER_",
    "TORCHELASTIC_",
)


def without_launchers():
    """The environment as nobody's launcher has made it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}


class Places(unittest.TestCase):
    def test_ranks_come_from_the_variables_of_launchers(self):
        for environment, rank, world, local in (
            ({}, None, None, None),
            ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, 3, 8, 1),
            ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, 2, 4, None),
            ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, 0, 2, 0),
            ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "2"}, 5, 6, 2),
            ({"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}, 1, 2, None),
            # torchrun below Slurm: torchrun knows better.
            ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "1", "WORLD_SIZE": "2"}, 1, 2, None),
            ({"RANK": "first", "WORLD_SIZE": "2"}, None, None, None),
        ):
            found = _ranks.find(environment)
            self.assertEqual((found.rank, found.world_size, found.local_rank), (rank, world, local))

    def test_process_group_takes_precedence_over_variables(self):
        group = types.SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: 6,
            get_world_size=lambda: 7,
        )
        with mock.patch.dict(sys.modules, {"torch.distributed": group}):
            found = _ranks.find({"RANK": "1", "WORLD_SIZE": "2"})
            self.assertEqual((found.rank, found.world_size, found.source), (6, 7, "torch.distributed"))
            group.is_initialized = lambda: False
            self.assertEqual(_ranks.find({"RANK": "1"}).rank, 1)

    def test_jax_is_never_initialised(self):
        bridge = types.SimpleNamespace(backends_are_initialized=lambda: False)
        state = types.SimpleNamespace(client=None)
        # An attribute that is asked for would be an error.
        modules = {
            "jax": types.SimpleNamespace(),
            "jax._src.xla_bridge": bridge,
            "jax._src.distributed": types.SimpleNamespace(global_state=state),
        }
        with mock.patch.dict(sys.modules, modules):
            self.assertEqual(_ranks.find({}), Ranks())
            state.client, state.process_id, state.num_processes = object(), 1, 4
            self.assertEqual(_ranks.find({})[:2], (1, 4))

    def test_missing_framework_attributes_are_ignored(self):
        with mock.patch.dict(sys.modules, {"torch.distributed": types.SimpleNamespace(), "jax": object()}):
            self.assertEqual(_ranks.find({"RANK": "4"}).rank, 4)


class Agreement(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        job = mock.patch.dict(os.environ, {**without_launchers(), "TORCHELASTIC_RUN_ID": "job"}, clear=True)
        job.start()
        self.addCleanup(job.stop)

    def agree(self, rank, number=1, now=1_000_000.0, world=2):
        return _ranks.agree(self.folder, Ranks(rank, world), number, now)

    def test_all_ranks_agree_on_one_session_name(self):
        name = self.agree(0)
        self.assertEqual(self.agree(1, now=1_000_007.0), name)

    def test_consecutive_sessions_have_different_names(self):
        first, second = self.agree(0), self.agree(0, number=2)
        self.assertNotEqual(first, second)
        self.assertEqual((self.agree(1, number=2), self.agree(1)), (second, first))

    def test_restarted_job_is_another_run(self):
        first = [self.agree(0), self.agree(1)]
        again = [self.agree(1, now=1_000_030.0), self.agree(0, now=1_000_031.0)]
        self.assertEqual(len({*first, *again}), 2)
        self.assertEqual(again[0], again[1])

    def test_late_rank_starts_another_session(self):
        name = self.agree(0)
        late = self.agree(1, now=1_000_000.0 + _ranks.JOIN_WITHIN_S + 1)
        self.assertNotEqual(late, name)

    def test_different_jobs_have_different_names(self):
        name = self.agree(0)
        with mock.patch.dict(os.environ, {"TORCHELASTIC_RUN_ID": "other"}):
            self.assertNotEqual(self.agree(1), name)
        self.assertNotEqual(self.agree(1, world=3), name)


PROGRAM = """
import sys
import stepscope
ranks = [int(rank) for rank in sys.argv[2:]] or None
options = stepscope.ProfileOptions(python_tracer_level=0)
for number in range(2):
    stepscope.start_trace(sys.argv[1], options=options, ranks=ranks)
    with stepscope.Trace(f"work {number}"):
        pass
    report = stepscope.stop_trace()
    print(report.path, report.warnings)
"""


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_ranks(self, *ranks, world=3):
        """The program, once for each rank, all at once."""
        environment = {
            **without_launchers(),
            "MASTER_ADDR": "here",
            "MASTER_PORT": "1",
            "WORLD_SIZE": str(world),
        }
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(self.folder), *map(str, ranks)],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        told = [process.communicate(timeout=60) for process in processes]
        for out, err in told:
            self.assertEqual(err, "", out)
        return [out for out, _ in told]

    def info(self):
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", "info", "--json", str(self.folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)["runs"]

    def test_ranks_of_one_job_are_one_run(self):
        self.run_ranks()
        found = files(self.folder)
        self.assertEqual(len(found), 6)
        self.assertEqual(
            {path.name for path in found},
            {f"{os.uname().nodename}_rank{rank}.xplane.pb" for rank in range(3)},
        )
        runs = self.info()
        self.assertEqual([run["ranks"] for run in runs], [[0, 1, 2]] * 2)
        stats = xspace.read(found[1]).stats
        self.assertEqual((stats["world_size"], stats["rank"], stats["local_rank"]), (3, 1, 1))

    def test_only_the_chosen_rank_is_recorded(self):
        told = self.run_ranks(0)
        self.assertEqual(len(files(self.folder)), 2)
        self.assertNotIn("not recorded", told[0])
        for out in told[1:]:
            self.assertEqual(out.count("None ('not recorded: this process has rank"), 2, out)
        self.assertEqual([run["ranks"] for run in self.info()], [[0], [0]])


class Skipped(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.options = stepscope.ProfileOptions(python_tracer_level=0, rank=1, world_size=2, ranks=[0])

    def test_skipped_rank_keeps_start_and_stop_rules(self):
        stepscope.start_trace(self.folder, options=self.options)
        self.assertFalse(stepscope.is_recording())
        with self.assertRaisesRegex(RuntimeError, "Only one profile may be run at a time"):
            stepscope.start_trace(self.folder)
        report = stepscope.stop_trace()
        self.assertIsNone(report.path)
        self.assertEqual(len(report.warnings), 1)
        with self.assertRaisesRegex(RuntimeError, "No profile started"):
            stepscope.stop_trace()
        stepscope.start_trace(self.folder, options=self.options)
        stepscope.discard_trace()
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_ranks_argument_takes_precedence_over_the_option(self):
        with stepscope.trace(self.folder, options=self.options, ranks=[1]) as recording:
            self.assertTrue(stepscope.is_recording())
            with self.assertRaisesRegex(RuntimeError, "Only one profile"):
                stepscope.start_trace(self.folder, options=self.options)
        found = xspace.read(recording.report.path)
        self.assertEqual((found.stats["rank"], found.stats["world_size"]), (1, 2))
        self.assertTrue(recording.report.path.name.endswith("_rank1.xplane.pb"))

    def test_invalid_ranks_are_errors(self):
        with self.assertRaisesRegex(ValueError, "0 or more"):
            stepscope.ProfileOptions(ranks=[-1])
        with self.assertRaises(TypeError):
            stepscope.ProfileOptions(ranks="0")
        with self.assertRaises(TypeError):
            stepscope.start_trace(self.folder, ranks=[True])
        self.assertEqual(stepscope.ProfileOptions(ranks=(2, 0, 2)).ranks, (0, 2))

    def test_variables_name_the_run_and_the_job_of_all_ranks(self):
        with mock.patch.dict(os.environ, {"STEPSCOPE_SESSION_ID": "shared", "STEPSCOPE_JOB": "llama"}):
            with stepscope.trace(self.folder, options=self.options, ranks=[1]) as recording:
                pass
        self.assertEqual(recording.report.path.parent.name, "shared")
        self.assertEqual(xspace.read(recording.report.path).stats["job"], "llama")


if __name__ == "__main__":
    unittest.main()
