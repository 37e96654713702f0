"""Labels inside of functions that torch.compile compiles: one graph, and the labels are recorded."""

import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
from torch._dynamo.testing import CompileCounter

import stepscope
import stepscope.jax

OUTSIDE = stepscope.Trace("made outside", rows=2)


def enclosed(x):
    with stepscope.Trace("forward", rows=3) as span:
        span.set_metadata(more=1)
        return (x * 2).sin()


def in_parts(x):
    x = x + 1
    with stepscope.Trace("first"):
        x = x * 2
    with stepscope.jax.TraceAnnotation("second", k=1):
        return x.sin()


@stepscope.Trace("decorated", rows=3)
def decorated(x):
    return x.cos() * 2


@stepscope.annotate_function
def annotated(x):
    return x.cos() * 2


def nested(x):
    with stepscope.StepTrace("step", step_num=7):
        for layer in range(2):
            with stepscope.Trace(f"layer {layer}"):
                x = x.sin()
        return x


def made_outside(x):
    with OUTSIDE:
        return x + 1


def numbered(x, number):
    with stepscope.StepTrace("train", step_num=number):
        return x + 1


def points(x):
    stepscope.instant("point", step=3)
    stepscope.counter("loss", 0.5)
    if stepscope.is_recording() or stepscope.Trace.is_enabled():
        x = x + 100
    return x + 1


def split(x):
    with stepscope.Trace("outer"):
        x = x + 1
        torch._dynamo.graph_break()
        stepscope.instant("between")
        return x * 2


def record(work):
    """What a recording of some work has: name and arguments of each slice, in order of time."""
    options = stepscope.ProfileOptions(python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        with stepscope.trace(folder, options=options, sources=[]) as recording:
            work()
        (run,) = stepscope.open(recording.report.path, use_cache=False)
        return [
            (one.name, {key: value for key, value in one.args.items() if key not in {"_r", "_rt"}})
            for track in run.tracks
            for one in track.slices
        ], run


class Graphs(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def test_labels_neither_split_nor_forbid_graphs(self):
        x = torch.ones(3)
        for function in (enclosed, in_parts, decorated, annotated, nested, made_outside, points):
            with self.subTest(function=function.__name__):
                torch._dynamo.reset()
                counter = CompileCounter()
                compiled = torch.compile(function, backend=counter, fullgraph=True)
                expected = function(x)
                for _ in range(2):
                    torch.testing.assert_close(compiled(x), expected)
                self.assertEqual(counter.frame_count, 1)

    def test_labels_around_whole_graphs_are_slices_of_each_run(self):
        x = torch.ones(3)
        cases = {
            enclosed: [("forward", {"rows": 3})],
            decorated: [("decorated", {"rows": 3})],
            annotated: [("annotated", {})],
            made_outside: [("made outside", {"rows": 2})],
            nested: [("step", {"step_num": 7}), ("compiled region", {"labels": "layer 0, layer 1"})],
            in_parts: [("compiled region", {"labels": "first, second"})],
        }
        for function, expected in cases.items():
            with self.subTest(function=function.__name__):
                torch._dynamo.reset()
                compiled = torch.compile(function, backend="eager", fullgraph=True)
                compiled(x)
                slices, _ = record(lambda compiled=compiled: [compiled(x) for _ in range(2)])
                self.assertEqual(slices, expected * 2)

    def test_new_step_numbers_compile_nothing(self):
        counter = CompileCounter()
        compiled = torch.compile(numbered, backend=counter, fullgraph=True)
        slices, _ = record(lambda: [compiled(torch.ones(3), number) for number in range(5)])
        self.assertEqual(counter.frame_count, 1)
        # The number of the first run would be wrong for the others.
        self.assertEqual(slices, [("train", {})] * 5)

    def test_instants_are_recorded_at_each_run(self):
        compiled = torch.compile(points, backend="eager", fullgraph=True)
        x = torch.ones(3)
        compiled(x)
        _, run = record(lambda: self.assertEqual(compiled(x)[0].item(), 2.0))
        instants = [(one.name, dict(one.args)) for track in run.tracks for one in track.instants]
        self.assertIn(("point", {"step": 3}), instants)
        samples = [one.value for track in run.tracks if track.name == "loss" for one in track.samples]
        self.assertEqual(samples, [0.5])

    def test_label_contains_the_code_between_graphs(self):
        compiled = torch.compile(split, backend="eager")
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x), split(x))
        slices, run = record(lambda: compiled(x))
        self.assertEqual({name for name, _ in slices}, {"outer"})
        track = next(track for track in run.tracks if len(track.slices))
        (between,) = [one for one in track.instants if one.name == "between"]
        self.assertTrue(any(one.start_ps <= between.time_ps <= one.end_ps for one in track.slices))

    def test_cpu_compiler_keeps_one_graph_and_the_gradients(self):
        model = torch.nn.Linear(3, 2)

        def loss(x):
            with stepscope.Trace("loss"):
                return model(x).relu().sum()

        x = torch.ones(4, 3)
        loss(x).backward()
        expected = model.weight.grad.clone()
        model.weight.grad = None
        compiled = torch.compile(loss, fullgraph=True)
        slices, _ = record(lambda: compiled(x).backward())
        torch.testing.assert_close(model.weight.grad, expected)
        self.assertEqual(slices, [("loss", {})])


class Imports(unittest.TestCase):
    def test_order_of_imports_does_not_matter(self):
        for order in (
            "import stepscope, torch",
            "import torch, stepscope",
            "import torch._dynamo, stepscope",
        ):
            with self.subTest(order=order):
                program = textwrap.dedent(f"""
                    {order}
                    import sys
                    assert ("torch._dynamo" in sys.modules) == ("_dynamo" in {order!r})
                    def f(x):
                        with stepscope.Trace("x"):
                            return x + 1
                    torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
                    names = [type(hook).__module__ for hook in sys.meta_path]
                    assert not [name for name in names if name.startswith("stepscope")], names
                    assert type(torch._dynamo.__spec__.loader).__module__ != "stepscope._import_hook"
                """)
                done = subprocess.run(
                    [sys.executable, "-W", "error::stepscope.StepscopeWarning", "-c", program],
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
