"""`stepscope run`: steps of programs that mark none, and recordings that begin with steps or by a signal."""

import itertools
import signal
import subprocess
import sys
import unittest
import unittest.mock

import xspace
from programs import TORCH, ProgramTest

from stepscope.recording._derived_steps import DerivedSteps, StepSource
from stepscope.recording._step_sources import JitCalls

# A stand-in for the Trainer of Hugging Face: its events, in their order.
TRANSFORMERS = {
    "transformers/__init__.py": "",
    "transformers/trainer_callback.py": """\
        class TrainerCallback:
            pass

        class TrainerState:
            global_step, epoch = 0, 0.0

        class TrainerControl:
            should_training_stop = should_evaluate = should_save = should_epoch_stop = False
        """,
    "transformers/trainer.py": """\
        from torch.optim import SGD
        from transformers.trainer_callback import TrainerControl, TrainerState

        class Trainer:
            def __init__(self, max_steps, callbacks=()):
                self.max_steps = max_steps
                self.callbacks = list(callbacks)

            def add_callback(self, callback):
                self.callbacks.append(callback)

            def event(self, name):
                for callback in self.callbacks:
                    getattr(callback, name)(None, self.state, self.control)

            def train(self, on_step):
                optimizer, self.state, self.control = SGD(), TrainerState(), TrainerControl()
                self.state.max_steps = self.max_steps
                self.event("on_train_begin")
                while self.state.global_step < self.max_steps:
                    self.event("on_step_begin")
                    for _ in range(2):
                        optimizer.step()
                    self.state.global_step += 1
                    self.state.epoch = self.state.global_step / 4
                    on_step(self)
                    self.event("on_step_end")
                    self.control.should_evaluate = False
                self.event("on_epoch_end")
                self.event("on_train_end")
        """,
}


class Steps(ProgramTest):
    def run_torch(self, program, *options):
        self.write({**TORCH, **TRANSFORMERS, "program.py": program})
        return self.run_program(
            sys.executable,
            "program.py",
            PYTHONPATH=str(self.folder),
            options=["--sources", "none", "--sample", "0", *options],
        )

    def steps(self):
        """Numbers of the derived steps of the only file, and what they are derived from."""
        (file,) = self.files()
        events = xspace.read(file).named("step (derived)")
        events.sort(key=lambda event: event.start_ns)
        for event, following in itertools.pairwise(events):
            self.assertLessEqual(event.start_ns + event.duration_ns, following.start_ns)
        return (
            [event.stats["step_num"] for event in events],
            sorted({event.stats["derived_from"] for event in events}),
        )

    def test_steps_of_an_optimizer_are_derived(self):
        done = self.run_torch(
            """\
            import torch
            optimizer, other = torch.optim.SGD(), torch.optim.SGD()
            for _ in torch.utils.data.DataLoader(range(12)):
                optimizer.step()
                other.step()
            """
        )
        self.assertEqual(self.steps(), ([*range(1, 13)], ["optimizer"]), done.stderr)
        self.assertIn("12 derived steps", done.stderr)
        self.assertIn("Derived steps take ", done.stderr)

    def test_batches_are_steps_where_the_program_makes_no_optimizer(self):
        done = self.run_torch(
            """\
            import torch
            import stepscope
            loader = torch.utils.data.DataLoader(range(100))
            for number, _ in enumerate(loader):
                with stepscope.Trace(f"batch {number}"):
                    pass
                if number == 4:
                    break
            with stepscope.Trace("after the loop"):
                pass
            for _ in torch.utils.data.DataLoader(range(3)):
                pass
            """
        )
        self.assertEqual(self.steps(), ([*range(1, 9)], ["data_loader"]), done.stderr)
        (file,) = self.files()
        recording = xspace.read(file)
        (after,) = recording.named("after the loop")
        for step in recording.named("step (derived)"):
            covers = step.start_ns <= after.start_ns < step.start_ns + step.duration_ns
            self.assertFalse(covers, "a left loop has ended its step")

    def test_batches_before_the_optimizer_are_steps_until_it_is_made(self):
        done = self.run_torch(
            """\
            import torch
            for _ in torch.utils.data.DataLoader(range(2)):
                pass
            optimizer = torch.optim.SGD()
            for _ in torch.utils.data.DataLoader(range(3)):
                optimizer.step()
            """
        )
        self.assertEqual(self.steps(), ([*range(1, 6)], ["data_loader", "optimizer"]), done.stderr)

    def test_steps_of_a_trainer_count_instead_of_those_of_its_optimizer(self):
        done = self.run_torch(
            """\
            import pickle
            import stepscope
            from transformers.trainer import Trainer
            from transformers.trainer_callback import TrainerCallback

            def on_step(trainer):
                if trainer.state.global_step == 3:
                    trainer.control.should_evaluate = True

            trainer = Trainer(max_steps=6)
            trainer.train(on_step)
            # A trainer that is sent elsewhere takes nothing of ours along.
            sent = pickle.loads(pickle.dumps(trainer.callbacks))
            print([type(callback) is TrainerCallback for callback in sent])
            """
        )
        self.assertEqual(done.stdout, "[True]\n", done.stderr)
        self.assertEqual(self.steps(), ([*range(1, 7)], ["trainer"]), done.stderr)

    def test_only_the_chosen_steps_are_recorded(self):
        done = self.run_torch(BODIES, "--steps", "5-7")
        self.assertIn("3 derived steps", done.stderr)
        # Step 5 lasts from the end of the fifth call of step() to the end of the sixth.
        bodies = sorted(name for name in self.names() if name.startswith("body"))
        self.assertEqual(bodies, ["body 5", "body 6", "body 7"])
        self.assertEqual(self.steps()[0], [5, 6, 7])

    def test_recording_ends_with_its_last_step(self):
        done = self.run_torch(
            """\
            import stepscope
            from transformers.trainer import Trainer
            Trainer(max_steps=6).train(lambda trainer: None)
            with stepscope.Trace("after training"):
                pass
            """,
            *("--steps", "3-6"),
        )
        self.assertEqual(self.steps()[0], [3, 4, 5, 6], done.stderr)
        self.assertNotIn("after training", self.names())

    def test_first_steps_are_skipped(self):
        done = self.run_torch(BODIES, "--skip-first", "16")
        self.assertEqual(self.steps()[0], [17, 18, 19, 20], done.stderr)
        bodies = sorted(name for name in self.names() if name.startswith("body"))
        self.assertEqual(bodies, ["body 17", "body 18", "body 19"])

    def test_program_with_fewer_steps_is_a_cause(self):
        done = self.run_torch(BODIES, "--skip-first", "90")
        self.assertIn(
            "stepscope: nothing was recorded: the program has made 20 steps, and the recording begins with "
            "step 91\nhelp: ",
            done.stderr,
        )
        self.assertEqual(self.files(), [])


BODIES = """\
    import torch
    import stepscope
    optimizer = torch.optim.SGD()
    for number in range(20):
        with stepscope.Trace(f"body {number}"):
            pass
        optimizer.step()
    """

# Prints each change of the state, and follows a signal handler of its own.
TOGGLED = """\
    import sys, time
    import stepscope

    def wait_until(recording):
        while stepscope.is_recording() is not recording:
            time.sleep(0.001)

    print("ready", flush=True)
    for number in range(2):
        wait_until(True)
        with stepscope.Trace(f"recording {number}"):
            pass
        print("recording", flush=True)
        wait_until(False)
        print("stopped", flush=True)
    sys.exit(3)
    """


class Signals(ProgramTest):
    def start(self, program, *options):
        self.write({"program.py": program})
        command = [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, "--sample", "0", *options]
        running = subprocess.Popen(
            [*command, "--", sys.executable, "program.py"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.stderr.close)
        return running

    def expect(self, running, line):
        self.assertEqual(running.stdout.readline(), line + "\n")

    def test_signal_begins_and_ends_recordings(self):
        running = self.start(TOGGLED, "--signal", "USR2")
        self.expect(running, "ready")
        for _ in range(2):
            running.send_signal(signal.SIGUSR2)
            self.expect(running, "recording")
            running.send_signal(signal.SIGUSR2)
            self.expect(running, "stopped")
        self.assertEqual(running.wait(60), 3)
        notes = running.stderr.read()
        names = [{event.name for event in xspace.read(file).events} for file in self.files()]
        self.assertEqual(
            [sorted(name for name in found if name.startswith("recording ")) for found in names],
            [["recording 0"], ["recording 1"]],
            notes,
        )
        self.assertIn("and one smaller run", notes)

    def test_program_without_a_handler_is_not_ended_by_the_signal(self):
        # The first interpreter is replaced by a shell, which would be ended.
        program = """\
            import os
            os.execvp("sh", ["sh", "-c", "echo ready; read line; echo $line"])
            """
        self.write({"program.py": program})
        command = [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, "--signal", "usr1"]
        with subprocess.Popen(
            [*command, "--", sys.executable, self.folder / "program.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as running:
            self.expect(running, "ready")
            running.send_signal(signal.SIGUSR1)
            running.stdin.write("alive\n")
            running.stdin.close()
            self.expect(running, "alive")
            self.assertEqual(running.wait(60), 0)

    def test_handler_of_the_environment_is_called_too(self):
        self.write(
            {
                "site/sitecustomize.py": """\
                import signal
                signal.signal(signal.SIGUSR2, lambda *_: print("theirs", flush=True))
                """,
                "program.py": """\
                import os, signal, time
                import stepscope
                signal.raise_signal(signal.SIGUSR2)
                while not stepscope.is_recording():
                    time.sleep(0.001)
                """,
            }
        )
        done = self.run_program(
            sys.executable,
            "program.py",
            options=["--signal", "SIGUSR2"],
            PYTHONPATH=str(self.folder / "site"),
        )
        self.assertEqual(done.stdout, "theirs\n", done.stderr)
        self.assertEqual(len(self.files()), 1)

    def test_without_the_option_the_program_has_no_handler(self):
        code = "import signal; print(signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL)"
        done = self.run_program(sys.executable, "-c", code)
        self.assertEqual(done.stdout, "True\n", done.stderr)

    def test_missing_signal_and_replaced_handler_are_causes(self):
        for code, cause in [
            ("pass", "the program has ended without the signal"),
            (
                "import signal; signal.signal(signal.SIGUSR2, print)",
                "the program has replaced the handler of the signal",
            ),
        ]:
            done = self.run_program(sys.executable, "-c", code, options=["--signal", "USR2"])
            self.assertIn(f"nothing was recorded: {cause}\n", done.stderr)
        self.assertEqual(self.files(), [])


class Memory(ProgramTest):
    def test_resident_memory_is_a_counter(self):
        self.write(
            {
                "program.py": """\
                import stepscope, time
                from stepscope.recording import _memory
                counted = []

                class Core:
                    def counter(*sample):
                        core.counter(*sample)
                        counted.append(sample)

                core, _memory._core = _memory._core, Core
                while not counted:
                    time.sleep(0.001)
                """
            }
        )
        done = self.run_program(sys.executable, "program.py", options=["--memory", "--sample", "0"])
        (file,) = self.files()
        samples = xspace.read(file).named("process memory (resident bytes)")
        self.assertTrue(samples, done.stderr)

    def test_history_of_torch_begins_with_cuda_and_its_snapshot_is_written(self):
        self.write(
            {
                "torch/__init__.py": """\
                import torch.cuda

                class _C:
                    _cuda_isHistoryEnabled = staticmethod(lambda: torch.cuda.memory.history is not None)
                """,
                "torch/cuda/__init__.py": """\
                import time
                import torch.cuda.memory
                from stepscope.recording import _memory
                initialised = False
                counted = []

                class Core:
                    def counter(*sample):
                        core.counter(*sample)
                        counted.append(sample)

                core, _memory._core = _memory._core, Core
                # The memory is counted while the import goes on, and torch is looked at in between.
                while len(counted) < 2:
                    time.sleep(0.001)

                def is_initialized():
                    return initialised
                """,
                "torch/cuda/memory.py": """\
                history = None

                def _record_memory_history(enabled="all", **options):
                    global history
                    history = options if enabled else None
                    print("history", history, flush=True)

                def _dump_snapshot(path):
                    open(path, "w").write("snapshot")
                """,
                "program.py": """\
                import time
                import torch
                torch.cuda.initialised = True
                while torch.cuda.memory.history is None:
                    time.sleep(0.001)
                """,
            }
        )
        done = self.run_program(
            sys.executable,
            "program.py",
            options=["--memory", "--sources", "none"],
            PYTHONPATH=str(self.folder),
        )
        self.assertEqual(
            done.stdout, "history {'max_entries': 100000, 'stacks': 'python'}\nhistory None\n", done.stderr
        )
        (file,) = self.files()
        host = file.name.removesuffix(".xplane.pb")
        snapshot = self.logs / "memory" / file.parent.name / f"{host}.torch.pickle"
        self.assertEqual(snapshot.read_text(), "snapshot", done.stderr)

    def test_profile_of_jax_is_a_run_of_its_own(self):
        self.write(
            {
                "jax/__init__.py": """\
                import atexit
                import jax.profiler
                from jax._src import xla_bridge
                atexit.register(xla_bridge.end)
                """,
                "jax/profiler.py": "def device_memory_profile():\n    return b'profile'\n",
                "jax/_src/__init__.py": "",
                "jax/_src/xla_bridge.py": """\
                live = True

                def end():
                    global live
                    live = False

                def backends_are_initialized():
                    return live
                """,
            }
        )
        done = self.run_program(
            sys.executable,
            "-c",
            "import jax",
            options=["--memory", "--sources", "none"],
            PYTHONPATH=str(self.folder),
        )
        (file,) = self.files()
        host = file.name.removesuffix(".xplane.pb")
        profile = self.logs / "memory" / file.parent.name / f"{host}.jax.pb.gz"
        self.assertEqual(profile.read_bytes(), b"profile", done.stderr)
        self.assertIn(f"memory at the end: stepscope report {profile} memory\n", done.stderr)


class Rules(unittest.TestCase):
    def owner(self):
        return type("Owner", (), {})()

    def test_steps_follow_the_next_optimizer_when_the_first_is_gone(self):
        steps, seen = DerivedSteps(), []
        steps.listener = lambda number, _: seen.append(number)
        first, second = self.owner(), self.owner()
        steps.advance(StepSource.OPTIMIZER, first)
        steps.advance(StepSource.OPTIMIZER, second)
        self.assertEqual(seen, [1])
        del first
        steps.advance(StepSource.OPTIMIZER, second)
        self.assertEqual(seen, [1, 2])

    def test_better_source_takes_over_and_worse_one_is_ignored(self):
        steps = DerivedSteps()
        owners = {source: self.owner() for source in StepSource}
        numbers = []
        for source in reversed(StepSource):
            steps.advance(source, owners[source])
            numbers.append(steps.number)
        self.assertEqual(numbers, [1, 2, 3, 4])
        for source in StepSource:
            if source is not StepSource.TRAINER:
                steps.advance(source, owners[source])
                steps.end(source, owners[source])
        self.assertEqual((steps.number, steps.source), (4, StepSource.TRAINER))

    def test_step_after_a_gap_has_no_length_before_it(self):
        steps, lengths = DerivedSteps(), []
        steps.listener = lambda _, previous_ns: lengths.append(previous_ns > 0)
        owner = self.owner()
        for _ in range(2):
            steps.begin(StepSource.TRAINER, owner)
            steps.begin(StepSource.TRAINER, owner)
            steps.advance(StepSource.TRAINER, owner)
            steps.end(StepSource.TRAINER, owner)
        self.assertEqual(lengths, [False, True, False, True])

    def test_jitted_function_that_repeats_counts(self):
        from stepscope.recording import _step_sources

        def calls_that_step(names):
            steps, seen, functions = DerivedSteps(), [], {}
            calls = JitCalls(lambda: None)
            with unittest.mock.patch.object(_step_sources, "steps", steps):
                for name in names:
                    function = functions.setdefault(name, self.owner())
                    function.__module__ = "jax._src.numpy" if name.isupper() else "program"
                    before = steps.number
                    calls(function, (), {}, None)
                    if steps.number > before:
                        seen.append(name)
            return "".join(seen)

        self.assertEqual(calls_that_step("ff"), "")
        # The third call ends what came before step 1.
        self.assertEqual(calls_that_step("fffff"), "fff")
        self.assertEqual(calls_that_step("afbfafbfaf"), "fff")
        # Initialisation gives way to training; training does not to an evaluation.
        self.assertEqual(calls_that_step("iiiii" + "t" * 9), "iii" + "tttt")
        self.assertEqual(calls_that_step("t" * 9 + "e" * 5 + "t"), "t" * 8)
        # JAX's own functions are none of the program's.
        self.assertEqual(calls_that_step("AAAAfAfAfA"), "f")


if __name__ == "__main__":
    unittest.main()
