import asyncio
import contextlib
import gc
import sys
import threading
import unittest

from recorded import record

import stepscope


class Spans(unittest.TestCase):
    def test_step_num_that_is_no_number_is_a_type_error(self):
        for wrong in ("abc", [1], object()):
            with self.subTest(wrong=wrong):
                for make in (
                    lambda wrong=wrong: stepscope.StepTrace("train", step_num=wrong),
                    lambda wrong=wrong: stepscope.StepTrace("train", wrong),
                ):
                    with self.assertRaisesRegex(TypeError, "step_num must be a number, not"):
                        make()
        for right in (3, 3.0, True, None):
            stepscope.StepTrace("train", step_num=right)
        stepscope.StepTrace("train")

    def test_nested_spans_keep_typed_arguments(self):
        class Odd:
            def __str__(self):
                return "odd, one"

        class Broken:
            def __str__(self):
                raise ValueError

        def work():
            with stepscope.Trace("outer"):
                with stepscope.Trace(
                    "inner",
                    whole=-3,
                    large=2**63,
                    huge=2**70,
                    part=0.5,
                    yes=True,
                    text="a,b#c=d",
                    odd=Odd(),
                    broken=Broken(),
                    nothing=None,
                ):
                    pass

        found = record(work)
        outer, inner = found.named("outer")[0], found.named("inner")[0]
        self.assertLessEqual(outer.start_ns, inner.start_ns)
        self.assertGreaterEqual(outer.start_ns + outer.duration_ns, inner.start_ns + inner.duration_ns)
        stats = dict(inner.stats)
        self.assertEqual(stats["whole"], -3)
        self.assertEqual(stats["large"], 2**63)
        self.assertEqual(stats["huge"], str(2**70))
        self.assertEqual(stats["part"], 0.5)
        self.assertEqual(stats["yes"], 1)
        self.assertEqual(stats["text"], "a,b#c=d")
        self.assertEqual(stats["odd"], "odd, one")
        self.assertEqual(stats["broken"], "<Broken: its str() raised ValueError>")
        self.assertEqual(stats["nothing"], "None")

    def test_steps_carry_their_number(self):
        def work():
            for number in range(3):
                with stepscope.StepTrace("train", step_num=number, split="a"):
                    pass
            with stepscope.StepTrace("test", 7):
                pass

        found = record(work)
        self.assertEqual([event.stats["step_num"] for event in found.named("train")], [0, 1, 2])
        self.assertEqual({event.stats["_r"] for event in found.named("train")}, {1})
        self.assertEqual({event.stats["split"] for event in found.named("train")}, {"a"})
        self.assertEqual(found.named("test")[0].stats["step_num"], 7)

    def test_counters_and_instants(self):
        def work():
            stepscope.counter("loss", 1.5)
            stepscope.counter("loss", float("nan"))
            stepscope.instant("saved", step=3)

        found = record(work)
        self.assertEqual([event.stats["counter_value"] for event in found.named("loss")], [1.5])
        self.assertEqual(found.named("saved")[0].stats, {"step": 3})
        self.assertEqual(found.named("saved")[0].duration_ns, 0)

    def test_set_metadata_adds_arguments_to_an_open_slice(self):
        def work():
            with stepscope.Trace("load", path="a") as span:
                span.set_metadata(rows=12)
            span.set_metadata(too_late=1)

        self.assertEqual(record(work).named("load")[0].stats, {"path": "a", "rows": 12})

    def test_names_may_be_any_text(self):
        names = ["", "ünïcode ☃", "a#b=c#", "x" * 2_000]

        def work():
            for name in names:
                with stepscope.Trace(name):
                    pass
            with stepscope.Trace(name="by keyword"):
                pass
            with stepscope.Trace("lone \ud800"):
                pass

        found = record(work).names()
        self.assertLessEqual({*names, "by keyword"}, found)
        self.assertEqual(len(found), 6)

    def test_invalid_constructor_arguments_are_type_errors(self):
        for make in (
            lambda: stepscope.Trace(),
            lambda: stepscope.Trace(3),
            lambda: stepscope.Trace("a", "b"),
            lambda: stepscope.StepTrace("a", 1, 2),
            lambda: stepscope.Trace("a")(1),
            lambda: stepscope.Trace("a")(len, x=1),
            lambda: stepscope.Trace("a").set_metadata(1),
            lambda: stepscope.counter(1, 2),
            lambda: stepscope.counter("a", "b"),
            lambda: stepscope.instant(1),
        ):
            with self.assertRaises(TypeError):
                make()

    def test_one_object_can_be_entered_repeatedly(self):
        def work():
            span = stepscope.Trace("same")
            with span, span:
                with span:
                    pass
            with span:
                pass

        found = record(work).named("same")
        self.assertEqual(len(found), 4)
        self.assertTrue(all(event.duration_ns > 0 for event in found))
        self.assertFalse(any("_unfinished" in event.stats for event in found))

    def test_one_object_can_be_open_on_many_threads(self):
        span = stepscope.Trace("shared")
        barrier = threading.Barrier(4)

        def thread():
            barrier.wait()
            for _ in range(200):
                with span, span:
                    pass

        def work():
            threads = [threading.Thread(target=thread, name=f"worker {n}") for n in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()

        found = record(work).named("shared")
        self.assertEqual(len(found), 1600)
        self.assertEqual({event.line for event in found}, {f"worker {n}" for n in range(4)})
        for n in range(4):
            self.assertEqual(sum(event.line == f"worker {n}" for event in found), 400)

    def test_span_can_end_on_another_thread(self):
        def work():
            span = stepscope.Trace("moved", rows=3)
            span.__enter__()
            thread = threading.Thread(target=span.__exit__, args=(None, None, None), name="other")
            thread.start()
            thread.join()

        found = record(work).named("moved")
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0].line, "other")
        self.assertEqual(found[0].stats, {"rows": 3})

    def test_subclasses_may_take_other_arguments(self):
        class Labelled(stepscope.Trace):
            def __new__(cls, label):
                return super().__new__(cls, f"label {label}", label=label)

        def work():
            with Labelled(3) as span:
                self.assertIsInstance(span, stepscope.Trace)

        self.assertEqual(record(work).named("label 3")[0].stats, {"label": 3})

    def test_dropping_an_open_span_ends_it(self):
        def work():
            stepscope.Trace("dropped").__enter__()
            gc.collect()
            with stepscope.Trace("after"):
                pass

        found = record(work)
        dropped, after = found.named("dropped")[0], found.named("after")[0]
        self.assertLessEqual(dropped.start_ns + dropped.duration_ns, after.start_ns)

    def test_annotations_leak_no_objects(self):
        def alive():
            gc.collect()
            return len(gc.get_objects())

        def work():
            for _ in range(2):
                before = alive()
                for n in range(10_000):
                    with stepscope.Trace("x", n=n):
                        pass
                after = alive()
            self.assertLess(after - before, 100)

        record(work)

    def test_arguments_are_not_evaluated_while_nothing_records(self):
        class Touchy:
            def __str__(self):
                raise AssertionError("looked at")

        with stepscope.Trace("x", value=Touchy()) as span:
            self.assertEqual(span.name, "x")
            self.assertFalse(span.is_enabled())
        stepscope.instant("x", value=Touchy())
        self.assertEqual(repr(span), "Trace('x')")
        self.assertEqual(repr(stepscope.StepTrace("t", 1)), "StepTrace('t')")


class Functions(unittest.TestCase):
    def test_decorated_functions_keep_their_signature(self):
        @stepscope.annotate_function
        def load(path, *, rows=1):
            """Doc."""
            return path * rows

        @stepscope.Trace("named", kind="b")
        def other():
            raise KeyError

        def work():
            self.assertEqual(load("a", rows=2), "aa")
            with self.assertRaises(KeyError):
                other()

        found = record(work)
        self.assertEqual((load.__name__, load.__doc__), ("load", "Doc."))
        self.assertEqual(len(found.named(load.__qualname__)), 1)
        self.assertEqual(found.named("named")[0].stats, {"kind": "b"})

    def test_methods_can_be_decorated(self):
        class Model:
            @stepscope.annotate_function(name="forward")
            def forward(self, x):
                return x + 1

            @stepscope.Trace("made")
            @classmethod
            def make(cls):
                return cls()

            @stepscope.Trace("checked")
            @staticmethod
            def check(x):
                return x

        def work():
            self.assertEqual(Model.make().forward(Model.check(1)), 2)

        self.assertEqual(record(work).names(), {"forward", "made", "checked"})

    def test_recursive_calls_are_nested_slices(self):
        @stepscope.Trace("down")
        def down(n):
            return n and down(n - 1)

        # More than the recorder has slots for open spans.
        limit = sys.getrecursionlimit()
        self.addCleanup(sys.setrecursionlimit, limit)
        sys.setrecursionlimit(limit + 1500)
        found = record(lambda: down(600)).named("down")
        self.assertEqual(len(found), 601)

    def test_coroutine_functions_can_be_decorated(self):
        import inspect

        @stepscope.Trace("wait")
        async def wait(seconds):
            await asyncio.sleep(seconds)
            return seconds

        self.assertTrue(inspect.iscoroutinefunction(wait))

        async def both():
            return await asyncio.gather(wait(0.02), wait(0.01))

        def work():
            self.assertEqual(asyncio.run(both()), [0.02, 0.01])

        found = record(work).named("wait")
        lengths = sorted(event.duration_ns for event in found)
        self.assertEqual(len(lengths), 2)
        self.assertGreaterEqual(lengths[0], 10e6)
        self.assertGreaterEqual(lengths[1], 20e6)

    def test_decorated_generators_forward_send_throw_and_close(self):
        @stepscope.Trace("count")
        def count():
            got = []
            try:
                got.append((yield 1))
                try:
                    yield 2
                except KeyError:
                    got.append("thrown")
                yield 3
            finally:
                got.append("closed")
            return got

        def work():
            generator = count()
            self.assertEqual(next(generator), 1)
            self.assertEqual(generator.send("sent"), 2)
            self.assertEqual(generator.throw(KeyError), 3)
            with self.assertRaises(StopIteration) as stop:
                next(generator)
            self.assertEqual(stop.exception.value, ["sent", "thrown", "closed"])
            never = count()
            next(never)
            del never

        self.assertEqual(len(record(work).named("count")), 2)

    def test_decorated_async_generators_forward_all_calls(self):
        closed = []

        @stepscope.Trace("stream")
        async def stream():
            try:
                got = yield 1
                try:
                    yield got
                except KeyError:
                    yield "thrown"
            finally:
                closed.append(True)

        async def use():
            one = stream()
            self.assertEqual(await one.__anext__(), 1)
            self.assertEqual(await one.asend("sent"), "sent")
            self.assertEqual(await one.athrow(KeyError), "thrown")
            with self.assertRaises(StopAsyncIteration):
                await one.__anext__()
            two = stream()
            await two.__anext__()
            await two.aclose()
            self.assertEqual([item async for item in stream()], [1, None])

        found = record(lambda: asyncio.run(use())).named("stream")
        self.assertEqual(len(found), 3)
        self.assertEqual(closed, [True] * 3)

    def test_exceptions_propagate_through_a_span(self):
        def work():
            with contextlib.suppress(ZeroDivisionError), stepscope.Trace("failing"):
                1 / 0

        self.assertEqual(len(record(work).named("failing")), 1)


if __name__ == "__main__":
    unittest.main()
