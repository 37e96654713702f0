"""Lightning's own profilers compared with ours, and real trainers with ours."""

import copy
import json
import logging
import os
import pstats
import random
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import lightning.pytorch as pl
import xspace
from lightning.pytorch import profilers as theirs
from lightning.pytorch.demos.boring_classes import BoringModel
from recorded import files

from stepscope import lightning as ours

STEPS = "[pl][profile]"


def trainer(profiler, folder, **options):
    return pl.Trainer(
        **{
            "profiler": profiler,
            "max_epochs": 1,
            "limit_train_batches": 6,
            "limit_val_batches": 6,
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "default_root_dir": folder,
            **options,
        }
    )


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")


class ReportTexts(Folder):
    def test_simple_reports_equal_those_of_lightning(self):
        random.seed(7)
        for case in range(400):
            names = {
                "".join(random.choices("ab[]. {}'ß漢\t", k=random.choice([1, 3, 8, 30, 61])))
                for _ in range(random.choice([1, 2, 7, 40]))
            }
            durations = {
                name: [
                    random.choice(
                        [0.0, 1e-9, random.random(), random.random() * 1e6, 10 ** random.uniform(-9, 9)]
                    )
                    for _ in range(random.choice([1, 2, 30]))
                ]
                for name in names
            }
            texts = []
            for package in (theirs, ours):
                profiler = package.SimpleProfiler(extended=case % 2 == 0)
                if case % 3:
                    profiler.setup(
                        random.Random(case).choice(["fit", "validate", "test", "predict"]), case % 5
                    )
                profiler.start_time = 1.0
                for name, each in durations.items():
                    profiler.recorded_durations[name] += each
                with mock.patch("time.perf_counter", return_value=1.5 + case * 17.3):
                    texts.append(profiler.summary())
            self.assertEqual(*texts)

    def test_empty_reports_equal_those_of_lightning(self):
        for kind in ("SimpleProfiler", "AdvancedProfiler", "PassThroughProfiler", "PyTorchProfiler"):
            self.assertEqual(getattr(theirs, kind)().summary(), getattr(ours, kind)().summary(), kind)

    def test_advanced_reports_equal_those_of_lightning(self):
        def work():
            return sorted([str(n) for n in range(10)], key=lambda text: len(text))

        for restriction in (1.0, 0.5, 3):
            for rank in (None, 1):
                one = ours.AdvancedProfiler(line_count_restriction=restriction)
                two = theirs.AdvancedProfiler(line_count_restriction=restriction)
                for profiler in (one, two):
                    profiler.setup("fit", rank)
                for action in ("a", "[b]c.d"):
                    with one.profile(action):
                        work()
                two.profiled_actions.update(one.profiled_actions)
                self.assertEqual(one.summary(), two.summary())

    def test_file_names_equal_those_of_lightning(self):
        random.seed(8)
        for _ in range(500):
            text = lambda: random.choice(  # noqa: E731
                [None, "".join(random.choices('ab_ -/\\:*?"<>|\n\r\t', k=random.randrange(6)))]
            )
            filename, action = text(), text()
            stage, rank = random.choice(["fit", "test"]), random.choice([None, 0, 3])
            names = []
            for package in (theirs, ours):
                profiler = package.PassThroughProfiler(filename=filename)
                if rank != 0:
                    profiler.setup(stage, rank)
                names.append(profiler._prepare_filename(action_name=action, extension=".x"))
            self.assertEqual(*names)

    def test_errors_equal_those_of_lightning(self):
        def message(function, *args, **kwargs):
            with self.assertRaises(Exception) as caught:
                function(*args, **kwargs)
            return str(caught.exception)

        from lightning.pytorch.utilities.exceptions import MisconfigurationException

        for kind in ("SimpleProfiler", "AdvancedProfiler"):
            texts = [message(getattr(package, kind)().stop, "x") for package in (theirs, ours)]
            self.assertEqual(*texts)
        for wrong in (
            {"schedule": 3},
            {"schedule": lambda _: 3},
            {"table_kwargs": {"sort_by": "x"}},
        ):
            texts = [message(package.PyTorchProfiler, **wrong) for package in (theirs, ours)]
            self.assertEqual(*texts)
        for kind in (MisconfigurationException, ValueError):
            with self.assertRaisesRegex(kind, "Found sort_by_key: x. Should be within"):
                ours.PyTorchProfiler(sort_by_key="x")


class Trainers(Folder):
    def test_trainer_uses_the_simple_profiler(self):
        profiler = ours.SimpleProfiler(filename="run", log_dir=self.folder / "logs")
        self.assertIsInstance(profiler, theirs.Profiler)
        fit = trainer(profiler, self.folder)
        fit.fit(BoringModel())
        self.assertIs(fit.profiler, profiler)
        text = (self.folder / "fit-run.txt").read_text()
        self.assertTrue(text.startswith("FIT Profiler Report\n"))
        self.assertEqual(len(profiler.recorded_durations["run_training_batch"]), 6)
        (file,) = files(self.folder / "logs")
        found = xspace.read(file)
        steps = [event.stats["step_num"] for event in found.named(STEPS + "run_training_batch")]
        self.assertEqual(steps, list(range(6)))
        recorded = {
            name.removeprefix(STEPS): len(found.named(name))
            for name in found.names()
            if name.startswith(STEPS)
        }
        self.assertEqual(recorded, {k: len(v) for k, v in profiler.recorded_durations.items()})
        # What PyTorch's profiler takes would be in the durations.
        self.assertFalse([name for name in found.names() if name.startswith("aten::")])
        fit.validate(BoringModel(), verbose=False)
        self.assertTrue((self.folder / "validate-run.txt").exists())
        self.assertEqual(len(files(self.folder / "logs")), 2)
        copy.deepcopy(profiler)

    def test_advanced_profiler_supports_nested_actions(self):
        profiler = ours.AdvancedProfiler(self.folder, "run", dump_stats=True)
        trainer(profiler, self.folder).fit(BoringModel())
        text = (self.folder / "fit-run.txt").read_text()
        self.assertIn("Profile stats for: run_training_epoch\n", text)

        def calls(action, name):
            (path,) = self.folder.glob(f"*{action}.prof")
            stats = pstats.Stats(str(path)).stats
            return sum(entry[1] for function, entry in stats.items() if function[2] == name)

        # Of a folder whose names hold brackets, glob makes patterns.
        for action in ("run_training_epoch", "run_training_batch", "?BoringModel.optimizer_step"):
            self.assertEqual(calls(action, "training_step"), 12, action)
        whole = pstats.Stats(str(self.folder / "fit-run-run_training_epoch.prof"))
        part = pstats.Stats(str(self.folder / "fit-run-run_training_batch.prof"))
        self.assertGreater(whole.total_tt, part.total_tt)

    def test_trainer_uses_the_pytorch_profiler(self):
        profiler = ours.PyTorchProfiler(self.folder, "run", log_dir=self.folder / "logs")
        trainer(profiler, self.folder).fit(BoringModel())
        text = (self.folder / "fit-run.txt").read_text()
        self.assertTrue(text.startswith("FIT Profiler Report\nProfile stats for: records\n---"), text[:80])
        names = sorted(path.name for path in self.folder.glob("*.pt.trace.json"))
        self.assertEqual(len(names), 2)
        self.assertTrue(names[0].startswith("fit-run-[Strategy]SingleDeviceStrategy.training_step."))
        self.assertTrue(any(e.name.startswith("[pl][profile]") for e in profiler.function_events))
        self.assertEqual(len(files(self.folder / "logs")), 1)

    def test_pytorch_reports_equal_the_tables_of_torch(self):
        import torch

        for more in (
            {},
            {"group_by_input_shapes": True, "sort_by_key": "count", "table_kwargs": {"time_unit": "us"}},
            {"profile_memory": True, "sort_by_key": "self_cpu_memory_usage", "row_limit": 7},
            {"with_stack": True, "with_flops": True, "row_limit": -1},
        ):
            profiler = ours.PyTorchProfiler(schedule=None, dirpath=self.folder, **more)
            trainer(profiler, self.folder, limit_val_batches=0).fit(BoringModel())
            averages = torch.profiler.profile.key_averages(
                profiler._recorded, group_by_input_shape="group_by_input_shapes" in more
            )
            table = averages.table(
                sort_by=more.get("sort_by_key", "cpu_time_total"),
                row_limit=more.get("row_limit", 20),
                **more.get("table_kwargs", {}),
            )
            self.assertEqual(profiler.summary(), f"FIT Profiler Report\nProfile stats for: records\n{table}")

    def test_pytorch_traces_contain_each_action_once(self):
        profiler = ours.PyTorchProfiler(schedule=None, dirpath=self.folder, filename="run")
        trainer(profiler, self.folder, limit_val_batches=0, max_steps=2).fit(BoringModel())
        (first,) = self.folder.glob("*.pt.trace.json")
        again = self.folder / "again.json"
        profiler._recorded.export_chrome_trace(str(again))
        for path in (first, again):
            names = [event.get("name") for event in json.loads(path.read_bytes())["traceEvents"]]
            self.assertEqual(names.count("[pl][profile]run_training_epoch"), 1, path)

    def test_record_functions_option_is_applied(self):
        labels = []
        for wanted in (None, {"on_train_batch_end"}):
            profiler = ours.PyTorchProfiler(schedule=None, record_functions=wanted, dirpath=self.folder)
            trainer(profiler, self.folder, limit_val_batches=0).fit(BoringModel())
            labels.append({e.name for e in profiler.function_events if e.name.startswith("[pl][profile]")})
        every, some = labels
        hooks = {name.rpartition(".")[2] for name in some}
        self.assertEqual(hooks, {"training_step", "backward", "on_train_batch_end"})
        self.assertLess(some, every)

    def test_stacks_and_shapes_are_exported(self):
        profiler = ours.PyTorchProfiler(
            self.folder, "run", group_by_input_shapes=True, export_to_flame_graph=True, schedule=None
        )
        trainer(profiler, self.folder, limit_val_batches=0, max_steps=3).fit(BoringModel())
        self.assertIn("Input Shapes", (self.folder / "fit-run.txt").read_text())

    def test_unknown_option_is_named_in_the_error(self):
        with self.assertWarnsRegex(UserWarning, "takes no recordshapes"):
            warnings.simplefilter("always")
            ours.PyTorchProfiler(recordshapes=True)

    def test_class_names_are_those_of_lightning(self):
        for name, kind in (("simple", theirs.SimpleProfiler), ("advanced", theirs.AdvancedProfiler)):
            self.assertIs(type(trainer(name, self.folder).profiler), kind)

    def test_custom_profilers_work(self):
        class Count(ours.Profiler):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.counts = {}

            def start(self, action_name):
                self.counts[action_name] = self.counts.get(action_name, 0) + 1

            def stop(self, action_name):
                pass

            def summary(self):
                return str(self.counts["run_training_batch"])

        profiler = Count(filename="own", log_dir=self.folder / "logs")
        trainer(profiler, self.folder).fit(BoringModel())
        self.assertEqual((self.folder / "fit-own.txt").read_text(), "6")
        (file,) = files(self.folder / "logs")
        self.assertEqual(len(xspace.read(file).named(STEPS + "run_training_batch")), 6)

    def test_each_rank_has_its_own_file(self):
        code = f"""
            import logging, warnings
            warnings.simplefilter("ignore")
            import lightning.pytorch as pl
            from lightning.pytorch.demos.boring_classes import BoringModel
            from stepscope.lightning import SimpleProfiler
            logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
            if __name__ == "__main__":
                profiler = SimpleProfiler({str(self.folder)!r}, "run")
                pl.Trainer(profiler=profiler, fast_dev_run=2, strategy="ddp_spawn", accelerator="cpu",
                    devices=2, enable_progress_bar=False, enable_model_summary=False, logger=False,
                ).fit(BoringModel())
        """
        script = self.folder / "program.py"
        script.write_text(textwrap.dedent(code))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        names = sorted(path.name for path in self.folder.glob("*.txt"))
        self.assertEqual(names, ["fit-run-0.txt", "fit-run-1.txt"])


class Xla(Folder):
    def test_steps_are_numbered_and_the_server_serves(self):
        code = f"""
            import socket, stepscope
            from stepscope.lightning import XLAProfiler
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            profiler = XLAProfiler(port=port)
            assert profiler.local_rank == 0
            options = stepscope.ProfileOptions(python_tracer_level=0)
            with stepscope.trace({str(self.folder)!r}, options=options):
                for _ in range(2):
                    with profiler.profile("run_training_batch"):
                        with profiler.profile("[Strategy]S.training_step"):
                            with profiler.profile("[Strategy]S.backward"):
                                pass
            with socket.create_connection(("localhost", port), 10):
                pass
            profiler.describe()
            stepscope.stop_server()
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env={**os.environ, "PJRT_DEVICE": "CPU"},
        )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        (file,) = files(self.folder)
        found = xspace.read(file)
        steps = [event.stats.get("step_num") for event in found.named("[Strategy]S.training_step")]
        self.assertEqual(steps, [1, 2])
        self.assertEqual(len(found.named("[Strategy]S.backward")), 2)
        self.assertEqual(len(found.named(STEPS + "run_training_batch")), 2)
        self.assertFalse(any(name.startswith(STEPS + "[Strategy]") for name in found.names()))


class Example(Folder):
    def test_example_runs(self):
        script = Path(__file__).parents[2] / "examples" / "lightning_fit" / "train.py"
        done = subprocess.run(
            [sys.executable, script, self.folder], capture_output=True, text=True, timeout=240, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        for name in ("simple", "advanced", "pytorch"):
            text = (self.folder / "reports" / f"fit-{name}.txt").read_text()
            self.assertIn("FIT Profiler Report", text)
            self.assertTrue(name == "pytorch" or "my_custom_action" in text)
        self.assertEqual(len(files(self.folder / "logs")), 3)
        self.assertNotIn("StepscopeWarning", done.stderr)


class Packages(unittest.TestCase):
    def test_both_lightning_packages_accept_the_classes(self):
        code = """
            import warnings
            warnings.simplefilter("ignore")
            import stepscope.lightning as ours
            early = ours.SimpleProfiler()
            import lightning.pytorch as one
            import pytorch_lightning as two
            late = ours.SimpleProfiler()
            for package in (one, two):
                assert isinstance(late, package.profilers.Profiler)
                trainer = package.Trainer(profiler=early, logger=False, fast_dev_run=1, accelerator="cpu",
                    enable_progress_bar=False, enable_model_summary=False)
                assert trainer.profiler is early
                demos = __import__(package.__name__ + ".demos.boring_classes", fromlist=["x"])
                import io, logging
                stream = io.StringIO()
                handler = logging.StreamHandler(stream)
                name = package.__name__ + ".profilers.profiler"
                logging.getLogger(name).addHandler(handler)
                logging.getLogger(name).setLevel(logging.INFO)
                trainer.fit(demos.BoringModel())
                assert stream.getvalue().count("FIT Profiler Report") == 1, (name, stream.getvalue())
                assert isinstance(early, package.profilers.Profiler)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=240
        )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])


if __name__ == "__main__":
    unittest.main()
