"""`stepscope run`: programs that know nothing of the package are recorded, and behave as without it."""

import signal
import subprocess
import sys
import unittest

from programs import TORCH, ProgramTest

from stepscope._environment import settings
from stepscope._errors import StepscopeError
from stepscope.recording._program import is_launcher, is_worker


class Programs(ProgramTest):
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

    def test_frameworks_of_a_program_that_another_one_starts_are_recorded(self):
        self.write(
            {
                **TORCH,
                "program.py": """\
                import subprocess, sys
                subprocess.run([sys.executable, "inner.py"], check=True)
                """,
                # The profiler of torch starts with the first call of a module.
                "inner.py": "import torch\nprint(len(torch.nn.modules.module.hooks))\n",
            }
        )
        done = self.run_program(sys.executable, "program.py", PYTHONPATH=str(self.folder))
        self.assertEqual(done.stdout, "1\n", done.stderr)

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
        for method in ("fork", "spawn", "forkserver"):
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

    def test_ranks_that_rank_0_starts_are_in_its_run(self):
        self.write(
            {
                **TORCH,
                "program.py": """\
                import os, subprocess, sys
                import torch
                if "LOCAL_RANK" not in os.environ:
                    ranks = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}
                    subprocess.run([sys.executable, __file__], env={**os.environ, **ranks}, check=True)
                """,
            }
        )
        done = self.run_program(
            sys.executable, "program.py", PYTHONPATH=str(self.folder), options=["--sources", "none"]
        )
        files = self.files()
        self.assertEqual(len(files), 2, done.stderr)
        self.assertEqual(len({file.parent for file in files}), 1, files)
        self.assertEqual([file.name.endswith("_rank1.xplane.pb") for file in files], [False, True])

    def test_ranks_of_a_launcher_are_one_run_without_the_launcher(self):
        self.write(
            {
                **TORCH,
                # As `accelerate launch`: an interpreter that imports torch, and starts others.
                "bin/accelerate": """\
                import os, subprocess, sys
                import torch

                def start(rank):
                    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": 29500}
                    texts = {name: str(value) for name, value in variables.items()}
                    environment = {**os.environ, **texts, "MASTER_ADDR": "127.0.0.1"}
                    return subprocess.Popen([sys.executable, *sys.argv[2:]], env=environment)

                sys.exit(max(rank.wait() for rank in [start(0), start(1)]))
                """,
                "program.py": """\
                import os, sys
                import torch
                sys.exit(3 * int(os.environ["RANK"]))
                """,
            }
        )
        done = self.run_program(
            sys.executable, "bin/accelerate", "launch", "program.py",
            PYTHONPATH=str(self.folder), options=["--sources", "none"],
        )  # fmt: skip
        self.assertEqual(done.returncode, 3, done.stderr)
        files = self.files()
        self.assertEqual(len({file.parent for file in files}), 1, files)
        ranks = [file.name.removesuffix(".xplane.pb").rpartition("_")[2] for file in files]
        self.assertEqual(ranks, ["rank0", "rank1"])
        self.assertNotIn("smaller run", done.stderr)

    def test_recordings_of_other_programs_are_not_those_of_the_command(self):
        code = "import os, stepscope; stepscope.start_trace('logs'); os.abort()"
        killed = subprocess.run([sys.executable, "-c", code], cwd=self.folder, check=False)
        self.assertEqual(killed.returncode, -signal.SIGABRT)
        done = self.run_program("true")
        self.assertIn("nothing was recorded: ", done.stderr)
        done = self.run_program(sys.executable, "-c", "", options=["--session", "ours"])
        self.assertIn("profile/ours (", done.stderr)
        self.assertNotIn("smaller run", done.stderr)

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

    def test_last_seconds_of_other_ranks_are_not_kept(self):
        options = ["--keep-last", "60s", "--ranks", "0"]
        done = self.run_program(sys.executable, "-c", "", options=options, RANK="1", WORLD_SIZE="2")
        self.assertIn("nothing was recorded: only other ranks are recorded", done.stderr)
        self.assertEqual(self.files(), [])


class Rules(unittest.TestCase):
    def test_launchers_are_distinguished_from_programs(self):
        for line, launches in [
            ("python /bin/torchrun --nproc-per-node 2 train.py", True),
            ("python -m torch.distributed.run train.py", True),
            ("python -X utf8 -u -m accelerate.commands.launch train.py", True),
            ("python /bin/jupyter-nbconvert --execute a.ipynb", True),
            ("python -m nbconvert --execute a.ipynb", True),
            ("python -m ipykernel_launcher -f kernel.json", False),
            ("python /bin/ipython train.py", False),
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
        for given, kept in [({}, 30), ({"STEPSCOPE_KEEP_LAST_S": "5"}, 5), ({"STEPSCOPE_SLOW_STEP": "0"}, 0)]:
            found = settings({"STEPSCOPE_LOG_DIR": "logs", "STEPSCOPE_SLOW_STEP": "1.5", **given})
            self.assertEqual(found.keep_last_s, kept, given)
        for name, value in [
            ("STEPS", "20-10"),
            ("STEPS", "0-3"),
            ("STEPS", "x"),
            ("CALLS", "2"),
            ("SAMPLING_HZ", "nan"),
            ("RANKS", "a"),
            ("WAIT_S", "-1"),
            ("SKIP_FIRST", "-1"),
            ("SIGNAL", "TERM"),
            ("MEMORY", "2"),
        ]:
            with self.assertRaisesRegex(StepscopeError, f"cannot use STEPSCOPE_{name}={value}: "):
                settings({"STEPSCOPE_LOG_DIR": "logs", f"STEPSCOPE_{name}": value})


if __name__ == "__main__":
    unittest.main()
