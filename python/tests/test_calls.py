import asyncio
import contextlib
import cProfile
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path

import xspace
from recorded import record, run_python

import stepscope

FILE = "test_calls.py"


def leaf(text):
    return len(text)


def branch():
    return [leaf("a"), leaf("bb")]


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def fails():
    raise KeyError


def numbers():
    yield 0
    yield 1
    yield 2


def label(function):
    return f"${FILE}:{function.__code__.co_firstlineno} {function.__name__}"


def traced(work):
    return record(work, python_tracer_level=1)


class Calls(unittest.TestCase):
    def test_python_and_c_calls_nest(self):
        found = traced(branch)
        outer = found.named(label(branch))
        self.assertEqual(len(outer), 1)
        leaves = found.named(label(leaf))
        self.assertEqual(len(leaves), 2)
        lens = found.named("$builtins len")
        self.assertEqual(len(lens), 2)
        for inner, around in ((lens[0], leaves[0]), (lens[1], leaves[1]), (leaves[0], outer[0])):
            self.assertLessEqual(around.start_ns, inner.start_ns)
            self.assertLessEqual(inner.start_ns + inner.duration_ns, around.start_ns + around.duration_ns)

    def test_every_call_is_recorded(self):
        found = traced(lambda: fib(15))
        self.assertEqual(len(found.named(label(fib))), 1973)
        self.assertFalse(any("_unfinished" in event.stats for event in found.named(label(fib))))

    def test_calls_deeper_than_the_open_slots_are_recorded(self):
        def deep(levels):
            return levels and deep(levels - 1)

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(3000)
        try:
            found = traced(lambda: (deep(1000), leaf("a")))
        finally:
            sys.setrecursionlimit(limit)
        slices = found.named(label(deep))
        self.assertEqual(len(slices), 1001)
        slices.sort(key=lambda one: one.start_ns)
        ends = [one.start_ns + one.duration_ns for one in slices]
        self.assertEqual(ends, sorted(ends, reverse=True))
        self.assertGreaterEqual(found.named(label(leaf))[0].start_ns, ends[0])

    def test_level_0_records_no_calls(self):
        found = record(branch, python_tracer_level=0)
        self.assertEqual(found.events, [])

    def test_host_level_0_records_calls_only(self):
        def work():
            with stepscope.StepTrace("step", step_num=1), stepscope.Trace("label"):
                branch()
            stepscope.instant("point")
            stepscope.counter("counter", 1.0)

        for options in ({"python_tracer_level": 1}, {}):
            with tempfile.TemporaryDirectory() as folder:
                options = stepscope.ProfileOptions(host_tracer_level=0, **options)
                with stepscope.trace(folder, options=options) as recording:
                    work()
                found = xspace.read(recording.report.path)
            self.assertEqual(len(found.named(label(branch))), 1)
            self.assertEqual([name for name in found.names() if not name.startswith("$")], [])
        found = record(work, host_tracer_level=0, python_tracer_level=0)
        self.assertEqual(found.events, [])
        self.assertEqual(record(work).names(), {"step", "label", "point", "counter"})

    def test_exceptions_end_slices(self):
        def work():
            for _ in range(3):
                with contextlib.suppress(KeyError):
                    fails()
            with contextlib.suppress(ValueError):
                int("x")
            branch()

        found = traced(work)
        failing = found.named(label(fails))
        self.assertEqual(len(failing), 3)
        after = found.named(label(branch))[0]
        for event in failing:
            self.assertLess(event.start_ns + event.duration_ns, after.start_ns)

    def test_generators_are_one_slice_per_resume(self):
        # Three values and the end.
        self.assertEqual(len(traced(lambda: list(numbers())).named(label(numbers))), 4)

        def unfinished():
            kept = numbers()
            next(kept)

        self.assertGreaterEqual(len(traced(unfinished).named(label(numbers))), 1)

    def test_coroutines_nest_with_spans(self):
        async def inner():
            await asyncio.sleep(0)

        async def outer():
            with stepscope.Trace("span"):
                await asyncio.gather(*(inner() for _ in range(3)))

        found = traced(lambda: asyncio.run(outer()))
        self.assertEqual(len(found.named("span")), 1)
        self.assertEqual(len(found.named(label(inner))), 6)

    def test_threads_started_before_the_recording_are_traced(self):
        go, done = threading.Event(), threading.Event()

        def early():
            go.wait(60)
            leaf("early")
            done.set()

        thread = threading.Thread(target=early, name="early bird")
        thread.start()

        def work():
            go.set()
            self.assertTrue(done.wait(60))
            late = threading.Thread(target=branch, name="late bird")
            late.start()
            late.join()

        found = traced(work)
        thread.join()
        self.assertEqual([e.line for e in found.named(label(leaf))].count("early bird"), 1)
        self.assertEqual({e.line for e in found.named(label(branch))}, {"late bird"})

    def test_methods_of_c_types_are_recorded(self):
        def work():
            items = []
            items.append(1)
            "a b".title()
            sorted([3, 1], key=lambda x: -x)

        found = traced(work)
        self.assertEqual(len(found.named("$<unknown> append")), 1)
        self.assertEqual(len(found.named("$<unknown> title")), 1)
        self.assertEqual(len(found.named("$builtins sorted")), 1)

    def test_functions_of_the_package_are_not_recorded(self):
        @stepscope.Trace("span")
        def function():
            pass

        def work():
            function()
            stepscope.instant("point")
            stepscope.flush_trace()

        found = traced(work)
        self.assertEqual(len(found.named(label(function.__wrapped__))), 1)
        own = {path.name for path in Path(stepscope.__file__).parent.rglob("_*.py")} - {"__init__.py"}
        self.assertGreater(len(own), 20)
        for name in found.names():
            self.assertNotIn(name.removeprefix("$").partition(":")[0], own)
            self.assertNotIn("stepscope._core", name)

    def test_calls_running_at_the_stop_are_unfinished(self):
        def work():
            stepscope.stop_trace()

        with tempfile.TemporaryDirectory() as folder:
            stepscope.start_trace(folder)

            def inside():
                return stepscope.stop_trace()

            report = inside()
            found = xspace.read(report.path)
        event = found.named(label(inside))[0]
        self.assertIn("_unfinished", event.stats)
        self.assertGreaterEqual(report.unfinished, 1)

    def test_stop_removes_profile_functions(self):
        for _ in range(3):
            traced(branch)
        self.assertIsNone(sys.getprofile())
        if sys.version_info >= (3, 12):
            self.assertEqual([sys.monitoring.get_tool(number) for number in range(6)], [None] * 6)
        else:
            self.assertIsNone(threading.getprofile())

    def test_silenced_call_sites_report_in_the_next_recording(self):
        def call(function):
            return function("abc")

        self.assertEqual(len(traced(lambda: call(leaf)).named("$builtins len")), 1)
        self.assertEqual(len(traced(lambda: call(len)).named("$builtins len")), 1)

    @unittest.skipIf(sys.version_info >= (3, 12), "sys.monitoring serves several tools")
    def test_active_profiler_is_kept_and_reported(self):
        def other(frame, event, argument):
            pass

        with tempfile.TemporaryDirectory() as folder:
            sys.setprofile(other)
            try:
                with self.assertWarnsRegex(stepscope.StepscopeWarning, "another profiler is active"):
                    stepscope.start_trace(folder)
                self.assertIs(sys.getprofile(), other)
                leaf("x")
                report = stepscope.stop_trace()
                self.assertIs(sys.getprofile(), other)
            finally:
                sys.setprofile(None)
            found = xspace.read(report.path)
        self.assertIn("another profiler is active", found.warnings[0])
        self.assertEqual(found.events, [])

    @unittest.skipIf(sys.version_info < (3, 12), "before sys.monitoring")
    def test_tracing_works_with_other_monitoring_tools(self):
        monitoring = sys.monitoring
        taken = [2, 3, 4, 5]
        for number in taken:
            monitoring.use_tool_id(number, f"tool {number}")
        try:
            with tempfile.TemporaryDirectory() as folder:
                with self.assertWarnsRegex(stepscope.StepscopeWarning, "other tools use sys.monitoring"):
                    stepscope.start_trace(folder)
                self.assertIn("other tools use sys.monitoring", stepscope.stop_trace().warnings[0])
            monitoring.free_tool_id(taken.pop())
            self.assertEqual(len(traced(branch).named(label(branch))), 1)
            self.assertEqual(monitoring.get_tool(2), "tool 2")
        finally:
            for number in taken:
                monitoring.free_tool_id(number)

    def test_cprofile_works_in_both_orders_of_starting(self):
        profile = cProfile.Profile()

        def profiled():
            profile.enable()
            leaf("x")
            profile.disable()

        with warnings.catch_warnings():
            # Before 3.12 there is one profiler at a time.
            warnings.simplefilter("ignore", stepscope.StepscopeWarning)
            traced(profiled)
            profile.enable()
            found = traced(branch)
            profile.disable()
        profile.create_stats()
        counted = {function[2]: entry[0] for function, entry in profile.stats.items()}
        self.assertEqual(counted["leaf"], 3)
        if sys.version_info >= (3, 12):
            self.assertEqual(len(found.named(label(leaf))), 2)

    @unittest.skipIf(sys.version_info < (3, 12), "before sys.monitoring")
    def test_tool_ids_of_debugger_coverage_and_profiler_stay_free(self):
        monitoring = sys.monitoring

        def take_all():
            for number in (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, monitoring.PROFILER_ID):
                monitoring.use_tool_id(number, "another")
                monitoring.free_tool_id(number)
            leaf("x")

        self.assertEqual(len(traced(take_all).named(label(leaf))), 1)

    def test_a_debugger_works_in_both_orders_of_starting(self):
        seen = []

        def debug(frame, event, _argument):
            if event == "call":
                seen.append(frame.f_code.co_name)

        def debugged():
            sys.settrace(debug)
            leaf("x")
            sys.settrace(None)

        before = sys.gettrace()
        try:
            self.assertEqual(len(traced(debugged).named(label(leaf))), 1)
            self.assertEqual(seen.count("leaf"), 1)
            sys.settrace(debug)
            found = traced(branch)
        finally:
            sys.settrace(before)
        self.assertEqual(len(found.named(label(leaf))), 2)
        self.assertEqual(seen.count("leaf"), 3)

    @unittest.skipIf(sys.version_info >= (3, 12), "sys.monitoring serves several tools")
    def test_profiler_that_takes_over_is_reported_once(self):
        with tempfile.TemporaryDirectory() as folder:
            stepscope.start_trace(folder)
            leaf("seen")
            profile = cProfile.Profile()
            profile.enable()
            leaf("not seen")
            profile.disable()
            leaf("not seen either")
            with self.assertWarnsRegex(stepscope.StepscopeWarning, "missing on 1 thread: another profiler"):
                report = stepscope.stop_trace()
            found = xspace.read(report.path)
        self.assertEqual(len(found.named(label(leaf))), 1)
        self.assertEqual(len([note for note in found.warnings if "another profiler" in note]), 1)
        (instant,) = [event for event in found.events if event.name.startswith("another profiler")]
        self.assertGreater(instant.start_ns, found.named(label(leaf))[0].start_ns)

    @unittest.skipIf(sys.version_info >= (3, 12), "sys.monitoring serves several tools")
    def test_profiler_that_takes_over_stays_after_the_stop(self):
        def other(frame, event, argument):
            pass

        before = threading.getprofile()
        try:
            with tempfile.TemporaryDirectory() as folder:
                stepscope.start_trace(folder)
                sys.setprofile(other)
                threading.setprofile(other)
                with self.assertWarnsRegex(stepscope.StepscopeWarning, "another profiler"):
                    stepscope.stop_trace()
            self.assertIs(sys.getprofile(), other)
            self.assertIs(threading.getprofile(), other)
        finally:
            sys.setprofile(None)
            threading.setprofile(before)

    @unittest.skipIf(sys.version_info >= (3, 12), "sys.monitoring serves several tools")
    def test_profilers_of_other_threads_are_kept(self):
        ready, done, kept = threading.Event(), threading.Event(), []

        def other(frame, event, argument):
            pass

        def work():
            sys.setprofile(other)
            ready.set()
            done.wait()
            kept.append(sys.getprofile())

        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        try:
            traced(branch)
        finally:
            done.set()
            thread.join()
        self.assertEqual(kept, [other])

    @unittest.skipIf(sys.version_info >= (3, 12), "sys.monitoring serves several tools")
    def test_restored_profile_function_traces_again(self):
        def guest():
            before = sys.getprofile()
            sys.setprofile(lambda *_: None)
            leaf("not seen")
            sys.setprofile(before)
            leaf("seen")

        with self.assertWarnsRegex(stepscope.StepscopeWarning, "another profiler"):
            found = traced(guest)
        self.assertEqual(len(found.named(label(leaf))), 1)

    def test_labels_and_start_trace_record_no_calls(self):
        def work():
            for number in range(3):
                with stepscope.StepTrace("step", step_num=number), stepscope.Trace("label") as span:
                    span.set_metadata(k=1)

        found = traced(work)
        unknown = [event.name for event in found.events if event.name.startswith("$<unknown>")]
        self.assertEqual(unknown, [])
        self.assertEqual(len(found.named("label")), 3)

    def test_more_names_than_name_numbers_are_recorded(self):
        done = run_python(
            """
            import sys, stepscope
            with stepscope.trace(sys.argv[1], options=stepscope.ProfileOptions(python_tracer_level=0)):
                for n in range(24_600):
                    with stepscope.Trace(f"name {n}"): pass
            code = "\\n".join(f"def f{n}(): pass" for n in range(20))
            space = {}
            exec(code, space)
            with stepscope.trace(sys.argv[1]) as recording:
                for _ in range(2):
                    for n in range(20): space[f"f{n}"]()
            print(recording.report.path)
            """,
            self.folder.name,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = xspace.read(done.stdout.strip())
        self.assertEqual(len(found.named("$<string>:20 f19")), 2)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)


if __name__ == "__main__":
    unittest.main()
