"""`stepscope.torch` over real programs, compared with torch's own figures of the same events."""

import contextlib
import gzip
import json
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path

import torch
import torch.profiler

import stepscope
import stepscope.torch

SOURCE = Path(__file__).parents[1] / "src"
CPU = [torch.profiler.ProfilerActivity.CPU]


def train(steps=2, after=None):
    """A small training run; returns the weights' sum."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        with stepscope.Trace("mine", step=step), torch.profiler.record_function("label"):
            loss = torch.nn.functional.cross_entropy(
                model(torch.randn(2, 3, 8, 8)), torch.zeros(2, dtype=torch.long)
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if after is not None:
            after()
    return sum(weight.sum().item() for weight in model.parameters())


def theirs(prof, **grouping):
    """torch's own averages of the same recording."""
    return torch.profiler.profile.key_averages(prof, **grouping)


class Averages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        train(1)
        with stepscope.torch.profile(
            activities=CPU, record_shapes=True, with_stack=True, profile_memory=True, with_flops=True
        ) as cls.prof:
            train()

    def test_rows_and_tables_equal_those_of_torch(self):
        for grouping in ({}, {"group_by_input_shape": True}, {"group_by_stack_n": 5}):
            with self.subTest(grouping=grouping):
                ours, other = self.prof.key_averages(**grouping), theirs(self.prof, **grouping)
                self.assertEqual(len(ours), len(other))
                for mine, row in zip(ours, other, strict=True):
                    for name in (
                        "key",
                        "count",
                        "is_async",
                        "is_user_annotation",
                        "device_type",
                        "input_shapes",
                        "stack",
                        "flops",
                        "node_id",
                        "cpu_memory_usage",
                        "self_cpu_memory_usage",
                    ):
                        self.assertEqual(getattr(mine, name), getattr(row, name), (row.key, name))
                    for name in ("cpu_time_total", "self_cpu_time_total", "cpu_time", "device_time_total"):
                        self.assertAlmostEqual(getattr(mine, name), getattr(row, name), 6, (row.key, name))
                    self.assertEqual(mine.cpu_time_total_str, row.cpu_time_total_str)
                    self.assertEqual(repr(mine), repr(row))
                if "group_by_stack_n" in grouping:
                    # torch writes its columns of operations and of stacks in each other's place.
                    continue
                for sort_by in (
                    None,
                    "cuda_time_total",
                    "self_cpu_time_total",
                    "cpu_memory_usage",
                    "count",
                    "key",
                ):
                    for limit in (-1, 0, 10):
                        self.assertEqual(
                            ours.table(sort_by=sort_by, row_limit=limit),
                            other.table(sort_by=sort_by, row_limit=limit),
                            (grouping, sort_by),
                        )

    def test_table_accepts_every_option_of_torch(self):
        ours, other = self.prof.key_averages(), theirs(self.prof)
        for options in (
            {"header": "A title", "top_level_events_only": True},
            {"time_unit": "ms", "max_name_column_width": 20},
            {"max_name_column_width": None, "sort_by": "self_cpu_time_total"},
        ):
            self.assertEqual(ours.table(**options), other.table(**options))
        with self.assertRaisesRegex(AttributeError, "no attribute 'nonsense'"):
            ours.table(sort_by="nonsense")
        with self.assertWarns(FutureWarning):
            self.assertEqual(ours[0].cuda_time_total, 0)
        self.assertEqual(ours.total_average().count, other.total_average().count)
        self.assertEqual(str(ours), str(other))

    def test_table_of_filtered_rows_works(self):
        rows = self.prof.key_averages()
        del rows[3:]
        self.assertEqual(len(rows.table().splitlines()), 3 + 3 + 2)

    def test_stacks_without_an_experimental_option(self):
        self.assertTrue(any(row.stack for row in self.prof.key_averages(group_by_stack_n=3)))
        with tempfile.TemporaryDirectory() as folder:
            mine, other = Path(folder, "ours.txt"), Path(folder, "theirs.txt")
            self.prof.export_stacks(str(mine))
            torch.profiler.profile.export_stacks(self.prof, str(other))
            self.assertEqual(mine.read_text(), other.read_text())
            self.assertGreater(len(mine.read_text()), 1000)
            with self.assertRaisesRegex(ValueError, "metric should be one of: "):
                self.prof.export_stacks(str(mine), "nonsense")

    def test_export_can_be_repeated_and_contains_our_spans(self):
        with tempfile.TemporaryDirectory() as folder:
            plain, packed = Path(folder, "a.json"), Path(folder, "a.json.gz")
            for path in (plain, packed, plain):
                self.prof.export_chrome_trace(str(path))
            trace = json.loads(plain.read_bytes())
            again = json.loads(gzip.decompress(packed.read_bytes()))
            self.assertEqual((trace.pop("traceName"), again.pop("traceName")), (str(plain), str(packed)))
            self.assertEqual(again, trace)
            self.assertEqual(trace["with_stack"], 1)
            events = trace["traceEvents"]
            mine = [event for event in events if event.get("name") == "mine"]
            labels = [event for event in events if event.get("name") == "label"]
            self.assertEqual([event["args"]["step"] for event in mine], [0, 1])
            for outer, inner in zip(mine, labels, strict=True):
                self.assertEqual(outer["tid"], inner["tid"])
                # Microseconds: two clocks that were read one after the other.
                self.assertLess(outer["ts"], inner["ts"] + 20)
                self.assertGreater(outer["ts"] + outer["dur"], inner["ts"] + inner["dur"] - 20)
            loaded = stepscope.torch.load(packed).key_averages()
            self.assertEqual(loaded.table(), self.prof.key_averages().table())

    def test_workers_of_a_data_loader_are_files_of_the_run(self):
        code = """
import sys, torch, stepscope

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        with stepscope.Trace("decode image", number=number):
            return torch.zeros(4)

if __name__ == "__main__":
    options = stepscope.ProfileOptions(python_tracer_level=0)
    stepscope.start_trace(sys.argv[1], options=options, sources=[])
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[2]
    )
    for number, batch in enumerate(loader):
        with stepscope.StepTrace("train", step_num=number):
            batch.sum()
    stepscope.stop_trace()
"""
        for method in ("fork", "spawn"):
            with self.subTest(method=method), tempfile.TemporaryDirectory() as folder:
                program = Path(folder, "program.py")
                program.write_text(code)
                done = subprocess.run(
                    [sys.executable, program, Path(folder, "logs"), method],
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                (run,) = stepscope.open(Path(folder, "logs"), use_cache=False)
                decoded = {}
                for track in run.tracks:
                    names = [event.name for event in track.slices]
                    if "decode image" in names:
                        decoded[track.key.split("/")[0]] = len(names)
                self.assertEqual(list(decoded.values()), [4, 4])
                for number, host in enumerate(sorted(decoded)):
                    self.assertRegex(host, rf"_DataLoader-worker-{number}_\d+$")
                self.assertEqual(run.report("overview").summary["steps"], 4)
                self.assertIsNone(run.report("overview").summary["ranks"])

    def test_arguments_of_labels_are_valid_json_under_args(self):
        with stepscope.torch.profile(activities=CPU) as prof:
            with stepscope.Trace("plain"):
                torch.ones(2) + 1
            given = {"ts": 0, "dur": 1, "ph": "i", "pid": 2, "tid": 3, "cat": "x"}
            with stepscope.Trace("odd", **given, nan=float("nan"), most=float("inf"), least=-float("inf")):
                torch.ones(2) + 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            prof.export_chrome_trace(str(path))

            def refuse(word):
                self.fail(f"{word} is no JSON")

            events = json.loads(path.read_bytes(), parse_constant=refuse)["traceEvents"]
        plain, odd = (
            next(event for event in events if event.get("name") == name) for name in ("plain", "odd")
        )
        expected = {**given, "nan": "NaN", "most": "Infinity", "least": "-Infinity"}
        self.assertEqual(odd["args"], expected)
        for key in ("ph", "pid", "tid", "cat"):
            self.assertEqual(odd[key], plain[key])
        self.assertGreaterEqual(odd["ts"], plain["ts"] + plain["dur"])

    def test_names_that_torch_does_not_escape_are_valid_json(self):
        def function():
            return torch.ones(2) + 1

        # kineto copies names of functions as they are; with Python 3.11 some point at freed memory.
        name = 'a "name" \x01'
        function.__code__ = function.__code__.replace(co_name=name)
        with stepscope.torch.profile(activities=CPU, with_stack=True) as prof:
            function()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            with self.assertWarnsRegex(stepscope.StepscopeWarning, "texts that are not JSON"):
                prof.export_chrome_trace(str(path))
            events = json.loads(path.read_bytes())["traceEvents"]
        stacks = [event.get("args", {}).get("Call stack", "") for event in events]
        self.assertTrue(any(name in stack for stack in stacks))

    def test_memory_timeline_is_exported(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "memory.json")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.prof.export_memory_timeline(str(path), device="cpu")
            times, sizes = json.loads(path.read_text())
            self.assertEqual(len(times), len(sizes))


class Schedules(unittest.TestCase):
    def test_cycles_call_the_handler_with_their_own_events(self):
        seen = []

        def ready(prof):
            steps = [row for row in prof.key_averages() if row.key == "ProfilerStep*"]
            other = [row for row in theirs(prof) if row.key == "ProfilerStep*"]
            self.assertEqual(steps[0].count, other[0].count)
            with tempfile.TemporaryDirectory() as folder:
                stepscope.torch.tensorboard_trace_handler(folder, use_gzip=True)(prof)
                stepscope.torch.tensorboard_trace_handler(folder)(prof)
                names = sorted(path.name for path in Path(folder).iterdir())
                self.assertEqual(len(names), 2)
                self.assertRegex(names[0], r"^.+_\d+\.\d+\.pt\.trace\.json(\.gz)?$")
            seen.append((prof.step_num, steps[0].count))

        with stepscope.torch.profile(
            activities=CPU,
            schedule=stepscope.torch.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=ready,
        ) as prof:
            train(10, after=prof.step)
        self.assertEqual(seen, [(5, 2), (9, 2)])
        self.assertIsInstance(prof, torch.profiler.profile)

    def test_incorrect_arguments_raise_the_errors_of_torch(self):
        with self.assertRaisesRegex(AssertionError, "Invalid profiler schedule arguments"):
            stepscope.torch.schedule(wait=-1, warmup=1, active=1)
        with stepscope.torch.profile(activities=CPU) as prof:
            train(1)
        with self.assertRaisesRegex(ValueError, "required for memory profiling"):
            prof.export_memory_timeline("x.json")
        with self.assertRaisesRegex(AssertionError, "with_stack=True"):
            prof.export_stacks("x.txt")

    def test_acc_events_keeps_the_events_of_all_cycles(self):
        with stepscope.torch.profile(
            activities=CPU,
            schedule=stepscope.torch.schedule(wait=0, warmup=1, active=1, repeat=2),
            acc_events=True,
        ) as prof:
            train(4, after=prof.step)
        steps = [row for row in prof.key_averages() if row.key == "ProfilerStep*"]
        self.assertEqual(steps[0].count, 2)


class Programs(unittest.TestCase):
    def test_profiling_keeps_the_results_of_the_program(self):
        plain = train()
        with stepscope.torch.profile(activities=CPU, with_stack=True, record_shapes=True):
            profiled = train()
        self.assertEqual(plain, profiled)

    def exported(self, prof):
        """Names of our labels in torch's trace."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            prof.export_chrome_trace(str(path))
            events = json.loads(path.read_bytes())["traceEvents"]
        return sorted(event["name"] for event in events if event.get("cat") == "stepscope")

    def recorded(self, path):
        """Names of labels in a file of ours."""
        (run,) = stepscope.open(path, use_cache=False)
        names = (one.name for track in run.tracks for one in track.slices)
        return sorted(name for name in names if name in {"before", "inside", "after"})

    def test_labels_are_in_both_recordings_when_ours_is_outside(self):
        with tempfile.TemporaryDirectory() as folder:
            stepscope.start_trace(folder, sources=[])
            with stepscope.torch.profile(activities=CPU) as prof, stepscope.Trace("inside"):
                train(1)
            self.assertTrue(stepscope.is_recording())
            report = stepscope.stop_trace()
            self.assertEqual(self.recorded(report.path), ["inside"])
            self.assertEqual(self.exported(prof), ["inside", "mine"])
            self.assertGreater(len(prof.key_averages()), 10)

    def test_labels_are_in_both_recordings_when_ours_is_inside(self):
        with tempfile.TemporaryDirectory() as folder:
            with stepscope.torch.profile(activities=CPU) as prof:
                self.assertTrue(stepscope.Trace.is_enabled())
                with stepscope.Trace("before"):
                    pass
                with stepscope.trace(folder, sources=[]) as recording, stepscope.Trace("inside"):
                    pass
                with stepscope.Trace("after") as span:
                    span.set_metadata(late=1)
            self.assertFalse(stepscope.Trace.is_enabled())
            self.assertEqual(self.recorded(recording.report.path), ["inside"])
            self.assertEqual(self.exported(prof), ["after", "before", "inside"])

    def test_captures_and_flight_recorder_work_inside_a_profile(self):
        with tempfile.TemporaryDirectory() as folder, stepscope.start_server(0, sources=[]) as server:
            with stepscope.torch.profile(activities=CPU) as prof:
                stepscope.start_flight(folder)
                stepscope.stop_flight()
                with stepscope.Trace("inside"):
                    report = stepscope.capture(f"localhost:{server.port}", folder, duration_ms=50)
            self.assertIsNone(report.hosts[0].failure)
            self.assertEqual(self.exported(prof), ["inside"])

    def test_labels_open_at_the_end_are_exported(self):
        with stepscope.torch.profile(activities=CPU) as prof:
            span = stepscope.Trace("inside")
            span.__enter__()
        span.__exit__(None, None, None)
        self.assertEqual(self.exported(prof), ["inside"])
        with stepscope.torch.profile(activities=CPU) as prof:
            pass
        self.assertEqual(self.exported(prof), [])

    def test_exceptions_and_threads_keep_the_profile_intact(self):
        with contextlib.suppress(ValueError), stepscope.torch.profile(activities=CPU) as prof:
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
            train(1)
            message = "of the program"
            raise ValueError(message)
        self.assertFalse(stepscope.is_recording())
        self.assertGreater(prof.key_averages().self_cpu_time_total, 0)

    def test_example_runs(self):
        example = Path(__file__).parents[2] / "examples" / "torch_train" / "train.py"
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(example), "--log-dir", folder, "--batch", "2"]
            told = {}
            for arguments in (("--no-torch-profile",), ()):
                done = subprocess.run(
                    [*command, *arguments], capture_output=True, text=True, timeout=120, check=False
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                told[arguments] = done.stdout
            plain, profiled = told.values()
            self.assertEqual(plain.splitlines()[0], profiled.splitlines()[0])
            self.assertIn("train.py(", profiled)
            rows = stepscope.torch.load(Path(folder, "train.rank0.pt.trace.json.gz")).key_averages()
            counts = {row.key: row.count for row in rows}
            self.assertEqual(counts["ProfilerStep*"], 3)
            self.assertEqual(counts["forward"], 3)

    def test_module_imports_no_torch(self):
        code = "import sys, stepscope.torch; assert 'torch' not in sys.modules; stepscope.torch.profile"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
