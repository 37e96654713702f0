"""`stepscope run`: programs that know nothing of the package are recorded, and behave as without it."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import xspace

from stepscope._environment import settings
from stepscope._errors import StepscopeError
from stepscope.recording._optimizer_steps import OptimizerSteps
from stepscope.recording._program import is_launcher, is_worker

# A stand-in for torch: an optimizer with torch's global hooks, and a module with its forward hook.
TORCH = {
    "torch/__init__.py": "from torch import optim\nfrom torch.nn import modules\n",
    "torch/optim/__init__.py": "from torch.optim.optimizer import SGD\n",
    "torch/optim/optimizer.py": """\
        _post_hooks = {}

        def register_optimizer_step_post_hook(hook):
            _post_hooks[len(_post_hooks)] = hook
            return object()

        class SGD:
            def step(self):
                for hook in _post_hooks.values():
                    hook(self, (), {})
        """,
    "torch/nn/__init__.py": "",
    "torch/nn/modules/__init__.py": "from torch.nn.modules import module\n",
    "torch/nn/modules/module.py": """\
        class Handle:
            def remove(self):
                hooks.clear()

        hooks = []

        def register_module_forward_pre_hook(hook):
            hooks.append(hook)
            return Handle()
        """,
}


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.logs = self.folder / "logs"

    def write(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def run_program(self, *command, options=(), **variables):
        """Run a program with the command, in the folder."""
        return subprocess.run(
            [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, *options, "--", *command],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), **variables},
        )

    def files(self):
        return sorted(self.logs.glob("plugins/profile/*/*.xplane.pb"))

    def names(self):
        """Names of all events of the only file."""
        (file,) = self.files()
        return [event.name for event in xspace.read(file).events]

    def test_script_module_and_code_are_recorded(self):
        self.write({"program.py": "import sys\nprint(sys.argv[1:], __name__)\n"})
        for number, command in enumerate(
            [
                ("program.py", "--lr", "3"),
                ("-m", "program", "--lr", "3"),
                ("-c", "import sys; print(sys.argv[1:], __name__)", "--lr", "3"),
            ],
            start=1,
        ):
            done = self.run_program(sys.executable, *command)
            self.assertEqual(done.stdout, "['--lr', '3'] __main__\n", done.stderr)
            self.assertEqual(done.returncode, 0)
            self.assertIn("stepscope: recorded ", done.stderr)
            self.assertIn("stepscope: View it with: stepscope ", done.stderr)
            self.assertEqual(len(self.files()), number)

    def test_exit_code_exception_and_signal_are_those_of_the_program(self):
        for code, expected in [
            ("raise SystemExit(7)", 7),
            ("raise LookupError('lost')", 1),
            ("import os; os._exit(9)", 9),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ]:
            with self.subTest(code):
                done = self.run_program(sys.executable, "-c", code)
                self.assertEqual(done.returncode, expected, done.stderr)
        # The recording of a killed program is recovered.
        self.assertEqual(len(self.files()), 4)

    def test_signals_reach_the_program(self):
        self.write(
            {
                "program.py": """\
                import signal, sys
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
                print("ready", flush=True)
                signal.pause()
                """
            }
        )
        command = [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, "--no-summary"]
        with subprocess.Popen(
            [*command, "--", sys.executable, self.folder / "program.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as running:
            self.assertEqual(running.stdout.readline(), "ready\n")
            running.send_signal(signal.SIGTERM)
            self.assertEqual(running.wait(60), 5)
        self.assertEqual(len(self.files()), 1)

    def test_sitecustomize_of_the_environment_runs_and_is_the_module(self):
        self.write(
            {
                "site/sitecustomize.py": "import sys\nsys.theirs = sys.modules[__name__]\nwhere = __file__\n",
                "program.py": """\
                import os, sys, sitecustomize
                print(sitecustomize is sys.theirs, os.path.basename(os.path.dirname(sitecustomize.where)))
                print(any("stepscope-run" in path for path in sys.path))
                """,
            }
        )
        done = self.run_program(sys.executable, "program.py", PYTHONPATH=str(self.folder / "site"))
        self.assertEqual(done.stdout, "True site\nFalse\n", done.stderr)
        self.assertEqual(len(self.files()), 1)

    def test_error_in_the_sitecustomize_of_the_environment_is_reported_as_without_us(self):
        self.write({"site/sitecustomize.py": "raise LookupError('theirs')\n"})
        done = self.run_program(sys.executable, "-c", "print(1)", PYTHONPATH=str(self.folder / "site"))
        self.assertEqual(done.stdout, "1\n")
        self.assertIn("LookupError: theirs", done.stderr)
        self.assertEqual(len(self.files()), 1)

    def test_program_in_an_environment_without_the_package_uses_that_of_the_command(self):
        self.write({"program.py": "import sys, stepscope\nprint(stepscope.is_recording())\n"})
        import venv

        venv.create(self.folder / "venv", symlinks=True)
        done = self.run_program(self.folder / "venv/bin/python", "program.py")
        self.assertEqual(done.stdout, "True\n", done.stderr)
        self.assertEqual(len(self.files()), 1)

    def test_log_directory_that_cannot_be_written_is_one_line_and_the_program_runs(self):
        (self.folder / "logs").write_text("a file")
        done = self.run_program(sys.executable, "-c", "print('works'); raise SystemExit(3)")
        self.assertEqual((done.stdout, done.returncode), ("works\n", 3))
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertTrue(lines[0].startswith("stepscope: cannot record this program: "), lines)
        self.assertTrue(lines[1].startswith("help: "), lines)

    def test_nested_interpreters_are_not_recorded_unless_they_use_a_framework(self):
        self.write(
            {
                **TORCH,
                "program.py": """\
                import subprocess, sys
                subprocess.run([sys.executable, "-c", "print('plain')"], check=True)
                subprocess.run([sys.executable, "-c", "import torch; print('torch')"], check=True)
                """,
            }
        )
        done = self.run_program(
            sys.executable, "program.py", PYTHONPATH=str(self.folder), options=["--sources", "none"]
        )
        self.assertEqual(done.stdout, "plain\ntorch\n", done.stderr)
        self.assertEqual(len(self.files()), 2)

    def test_workers_of_multiprocessing_are_in_the_run(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                self.write(
                    {
                        "program.py": """\
                        import multiprocessing, sys
                        import stepscope

                        def work(number):
                            with stepscope.Trace("in worker"):
                                return number + 1

                        if __name__ == "__main__":
                            with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
                                print(pool.map(work, [1, 2]))
                                pool.close()
                                pool.join()
                        """
                    }
                )
                done = self.run_program(
                    sys.executable, "program.py", method, options=["--session", method, "--no-summary"]
                )
                self.assertEqual(done.stdout, "[2, 3]\n", done.stderr)
                files = sorted(self.logs.glob(f"plugins/profile/{method}/*.xplane.pb"))
                self.assertEqual(len(files), 2, files)

    def test_recording_of_the_program_takes_the_place_of_ours(self):
        self.write(
            {
                "program.py": """\
                import stepscope
                with stepscope.trace("own") as recording:
                    with stepscope.Trace("inside"):
                        pass
                print(recording.report.spans > 0)
                """
            }
        )
        done = self.run_program(sys.executable, "program.py")
        self.assertEqual(done.stdout, "True\n", done.stderr)
        self.assertEqual(len(self.files()), 1)

    def test_steps_of_an_optimizer_are_derived(self):
        self.write(
            {
                **TORCH,
                "program.py": """\
                import torch
                optimizer, other = torch.optim.SGD(), torch.optim.SGD()
                for _ in range(12):
                    optimizer.step()
                    other.step()
                """,
            }
        )
        done = self.run_program(
            sys.executable, "program.py", PYTHONPATH=str(self.folder), options=["--sources", "none"]
        )
        self.assertEqual(self.names().count("step (derived)"), 12, done.stderr)
        self.assertIn("12 derived steps", done.stderr)
        self.assertIn("Derived steps take ", done.stderr)

    def test_only_the_chosen_steps_are_recorded(self):
        self.write(
            {
                **TORCH,
                "program.py": """\
                import torch
                import stepscope
                optimizer = torch.optim.SGD()
                for number in range(20):
                    with stepscope.Trace(f"body {number}"):
                        pass
                    optimizer.step()
                """,
            }
        )
        done = self.run_program(
            sys.executable,
            "program.py",
            PYTHONPATH=str(self.folder),
            options=["--sources", "none", "--steps", "5-7", "--sample", "0"],
        )
        self.assertIn("3 derived steps", done.stderr)
        names = self.names()
        # Step 5 lasts from the end of the fifth call of step() to the end of the sixth.
        bodies = sorted(name for name in names if name.startswith("body"))
        self.assertEqual(bodies, ["body 5", "body 6", "body 7"])
        self.assertEqual(names.count("step (derived)"), 3)

    def test_other_ranks_are_not_recorded(self):
        for rank, count in [("1", 0), ("0", 1)]:
            done = self.run_program(
                sys.executable, "-c", "print(1)", options=["--ranks", "0"], RANK=rank, WORLD_SIZE="2"
            )
            self.assertEqual(done.stdout, "1\n", done.stderr)
            self.assertEqual(len(self.files()), count)

    def test_last_seconds_are_kept(self):
        self.write(
            {
                "program.py": """\
                import stepscope
                with stepscope.Trace("kept"):
                    pass
                """
            }
        )
        done = self.run_program(sys.executable, "program.py", options=["--keep-last", "60s", "--sample", "0"])
        self.assertIn("kept", self.names(), done.stderr)


class Rules(unittest.TestCase):
    def test_launchers_are_told_from_programs(self):
        for line, launches in [
            ("python /bin/torchrun --nproc-per-node 2 train.py", True),
            ("python -m torch.distributed.run train.py", True),
            ("python -X utf8 -u -m accelerate.commands.launch train.py", True),
            ("python train.py torchrun", False),
            ("python -m train", False),
            ("python -c import\ttorchrun", False),
            ("python", False),
        ]:
            self.assertEqual(is_launcher(line.split(" ")), launches, line)
        self.assertTrue(is_worker(["python", "-c", "from multiprocessing.spawn import spawn_main"]))
        self.assertFalse(is_worker(["python", "train.py"]))

    def test_variables_are_read_and_wrong_ones_named(self):
        self.assertIsNone(settings({}))
        found = settings(
            {
                "STEPSCOPE_LOG_DIR": "logs",
                "STEPSCOPE_STEPS": "10-20",
                "STEPSCOPE_CALLS": "1",
                "STEPSCOPE_SAMPLING_HZ": "50",
                "STEPSCOPE_RANKS": "8,0",
                "STEPSCOPE_SOURCES": "jax,torch",
                "STEPSCOPE_MAX_BYTES": "2000000",
            }
        )
        self.assertEqual((found.steps, found.ranks, found.sources), ((10, 20), (0, 8), ("jax", "torch")))
        self.assertTrue(found.options.traces_calls)
        self.assertEqual((found.options.python_sampling_hz, found.options.max_bytes), (50, 2_000_000))
        for name, value in [
            ("STEPS", "20-10"),
            ("STEPS", "x"),
            ("CALLS", "2"),
            ("SAMPLING_HZ", "nan"),
            ("RANKS", "a"),
            ("WAIT_S", "-1"),
        ]:
            with self.assertRaisesRegex(StepscopeError, f"cannot use STEPSCOPE_{name}={value}: "):
                settings({"STEPSCOPE_LOG_DIR": "logs", f"STEPSCOPE_{name}": value})

    def test_steps_follow_the_next_optimizer_when_the_first_is_gone(self):
        class Optimizer:
            pass

        steps, seen = OptimizerSteps(), []
        steps.listener = lambda number, _: seen.append(number)
        first, second = Optimizer(), Optimizer()
        steps._advance(first)
        steps._advance(second)
        self.assertEqual(seen, [1])
        del first
        steps._advance(second)
        self.assertEqual(seen, [1, 2])


if __name__ == "__main__":
    unittest.main()
