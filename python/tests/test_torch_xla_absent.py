"""`stepscope.torch_xla` where there is no PyTorch/XLA: the labels, the server and the client."""

import asyncio
import contextlib
import functools
import sys
import tempfile
import threading
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

import xspace
from recorded import record, run_python

import stepscope
import stepscope.torch_xla as xp


class Labels(unittest.TestCase):
    def test_import_imports_no_framework(self):
        done = run_python(
            """
            import sys
            import stepscope.torch_xla as xp
            with xp.Trace("x"), xp.StepTrace("train", step_num=1):
                pass
            print({name.split(".")[0] for name in sys.modules} & {"torch", "torch_xla", "jax"})
            """
        )
        self.assertEqual(done.stdout.strip(), "set()", done.stderr)

    def test_every_name_of_torch_xla_profiler_exists(self):
        for name in (
            *("start_server", "start_trace", "stop_trace", "Trace", "StepTrace", "trace_me", "trace"),
            *("trace_detached", "get_tracer_marked_step", "set_tracer_marked_step"),
        ):
            self.assertIn(name, xp.__all__)
            self.assertTrue(callable(getattr(xp, name)))

    def test_labels_and_steps_are_recorded_with_arguments(self):
        def work():
            with xp.StepTrace("train", step_num=3, note="n") as step:
                with xp.Trace("forward", rows=32) as forward:
                    forward.set_metadata(loss=0.5)
                self.assertEqual(step.metadata, {"step_num": 3, "note": "n"})
            with xp.StepTrace("test"):
                pass

        found = record(work)
        (train,) = found.named("train")
        self.assertEqual(
            {key: train.stats[key] for key in ("step_num", "note")}, {"step_num": 3, "note": "n"}
        )
        self.assertEqual(train.stats["_r"], 1)
        self.assertEqual(found.named("test")[0].stats["_r"], 1)
        (forward,) = found.named("forward")
        self.assertEqual((forward.stats["rows"], forward.stats["loss"]), (32, 0.5))
        self.assertNotIn("_r", forward.stats)
        self.assertLessEqual(train.start_ns, forward.start_ns)

    def test_decorated_functions_of_every_kind(self):
        @xp.trace_me("plain")
        def plain(a):
            return a + 1

        @xp.trace_me("generator")
        def generator():
            yield 1
            yield 2

        @xp.Trace("coroutine", n=1)
        async def coroutine():
            return 3

        def work():
            self.assertEqual(plain(1), 2)
            self.assertEqual(list(generator()), [1, 2])
            self.assertEqual(asyncio.run(coroutine()), 3)

        found = record(work)
        for name in ("plain", "generator", "coroutine"):
            self.assertEqual(len(found.named(name)), 1, name)
        self.assertEqual(plain.__name__, "plain")

    def test_step_trace_sets_the_marked_step_flag(self):
        xp.set_tracer_marked_step(False)
        self.assertFalse(xp.get_tracer_marked_step())
        with xp.StepTrace("train", step_num=0):
            self.assertTrue(xp.get_tracer_marked_step())

    def test_step_trace_is_a_trace(self):
        self.assertTrue(issubclass(xp.StepTrace, xp.Trace))
        self.assertTrue(issubclass(xp.Trace, stepscope.Trace))
        self.assertFalse(xp.Trace.is_enabled(1))


class Scopes(unittest.TestCase):
    """A stand-in for PyTorch/XLA whose scopes are a stack that must be popped on its thread."""

    def setUp(self):
        stacks = threading.local()
        self.problems = problems = []
        self.seen = seen = []

        def stack():
            if not hasattr(stacks, "names"):
                stacks.names = []
            return stacks.names

        self.stack = stack

        class Scope:
            def __init__(self, name):
                stack().append(name)
                seen.append(list(stack()))

            def __del__(self):
                if stack():
                    stack().pop()
                else:
                    problems.append("popped on a thread that has none")

        class TraceMe:
            level = -1

            def __init__(self, name, **metadata):
                self.told = (name, metadata)

            def __enter__(self):
                seen.append(self.told)

            def __exit__(self, *_):
                seen.append("end")

            @staticmethod
            def is_enabled(level):
                return TraceMe.level >= level

        self.trace_me = TraceMe
        module = types.ModuleType("torch_xla")
        module._XLAC = types.SimpleNamespace(
            _get_ir_debug=lambda: self.debug,
            profiler=types.SimpleNamespace(TraceMe=TraceMe, scope_pusher=Scope),
        )
        self.syncs = 0

        def sync():
            self.syncs += 1
            if stack():
                raise RuntimeError(f"Expecting scope to be empty but it is {stack()[-1]}")

        module.sync = sync
        self.debug = True
        self.enterContext(mock.patch.dict(sys.modules, {"torch_xla": module}))

    if sys.version_info < (3, 11):

        def enterContext(self, context):
            result = context.__enter__()
            self.addCleanup(context.__exit__, None, None, None)
            return result

    def test_scopes_nest_and_close_after_exceptions(self):
        with xp.Trace("a"), xp.Trace("b"):
            pass
        self.assertEqual(self.seen[-2:], [["a"], ["a", "b"]])
        with self.assertRaises(ZeroDivisionError), xp.Trace("c"), xp.Trace("d"):
            1 / 0
        self.assertEqual(self.stack(), [])

    def test_failed_enter_closes_its_scopes(self):
        self.trace_me.level = 2
        with mock.patch.object(self.trace_me, "__enter__", side_effect=KeyError("no")):
            with self.assertRaises(KeyError):
                xp.Trace("x").__enter__()
        self.assertEqual(self.stack(), [])

    def test_scopes_are_closed_before_a_step_syncs(self):
        with xp.StepTrace("train", step_num=0), xp.Trace("forward"):
            pass
        self.assertEqual((self.syncs, self.stack()), (1, []))

    def test_exception_of_the_block_takes_precedence_over_the_sync(self):
        def fail():
            raise RuntimeError("the device is gone")

        sys.modules["torch_xla"].sync = fail
        with self.assertWarnsRegex(stepscope.StepscopeWarning, "the device is gone"):
            with self.assertRaises(ZeroDivisionError), xp.StepTrace("train"):
                1 / 0
        with self.assertRaisesRegex(RuntimeError, "gone"), xp.StepTrace("train"):
            pass
        self.assertEqual(self.stack(), [])

    def test_scope_left_on_another_thread_returns_to_its_thread(self):
        label = xp.Trace("wanders")
        label.__enter__()
        thread = threading.Thread(target=label.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        # It stands until its thread comes by.
        self.assertEqual(self.stack(), ["wanders"])
        with xp.Trace("next"):
            pass
        self.assertEqual((self.stack(), self.problems), ([], []))
        self.assertIn(["next"], self.seen)

    def test_one_label_can_be_entered_twice(self):
        label = xp.Trace("again")
        with label, label:
            self.assertEqual(self.stack(), ["again", "again"])
        self.assertEqual(self.stack(), [])

    def test_no_scope_is_entered_without_ir_debug(self):
        self.debug = False
        with xp.Trace("x"):
            self.assertEqual(self.stack(), [])

    def test_labels_reach_the_recorder_of_torch_xla_unless_we_run_it(self):
        self.debug = False
        self.trace_me.level = 2
        with xp.StepTrace("train", step_num=7):
            pass
        self.assertEqual(self.seen, [("train", {"_r": 1, "step_num": 7}), "end"])
        self.assertTrue(xp.Trace.is_enabled(2))
        self.seen.clear()
        options = stepscope.ProfileOptions(python_tracer_level=0)
        with tempfile.TemporaryDirectory() as folder, stepscope.trace(folder, options=options, sources=[]):
            with xp.Trace("both"):
                pass
            self.assertEqual(self.seen, [("both", {}), "end"])
            self.seen.clear()
            with mock.patch("stepscope.recording._sources.xla_is_ours", new=True), xp.Trace("ours"):
                pass
        self.assertEqual(self.seen, [])


class Server(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(self.stop)

    def stop(self):
        with contextlib.suppress(stepscope.ServerError):
            stepscope.stop_server()

    def test_server_stays_after_its_result_is_dropped(self):
        done = threading.Event()
        recorded = 0

        def work():
            nonlocal recorded
            while not done.wait(0.001):
                with xp.Trace("busy"):
                    pass
                recorded = recorded + 1 if stepscope.is_recording() else 0

        # A time may pass without the thread's work.
        capture = functools.partial(stepscope.capture, end_when=lambda: recorded > 10)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            server = xp.start_server(0)
            port = server.port
            # The same port is the same server, also when its result was thrown away.
            self.assertIs(xp.start_server(port), server)
            del server
            again = xp.start_server(port)
            self.assertEqual(again.port, port)
            with mock.patch.object(xp, "capture", capture):
                report = xp.trace(f"localhost:{port}", self.folder, duration_ms=600_000)
        finally:
            done.set()
            thread.join()
        self.assertTrue(xspace.read(report.hosts[0].path).named("busy"))

    def test_server_moves_to_another_port_once_unused(self):
        server = xp.start_server(0)
        with self.assertRaisesRegex(RuntimeError, "Only one profiler server"):
            xp.start_server(server.port % 60000 + 1024)
        del server
        # Nothing refers to it any more.
        self.assertIsNotNone(xp.start_server(0))

    def test_only_the_master_starts_a_server(self):
        with mock.patch.dict("os.environ", {"RANK": "1", "WORLD_SIZE": "2"}):
            self.assertIsNone(xp.start_server(0))
            self.assertIsNotNone(xp.start_server(0, only_on_master=False))

    def test_invalid_ports_are_runtime_errors(self):
        with self.assertRaises(RuntimeError):
            xp.start_server(99999999)

    def test_capture_without_a_server_fails_fast(self):
        with self.assertRaisesRegex(RuntimeError, "refused"):
            xp.trace("127.0.0.1:1", self.folder, duration_ms=50, timeout_s=120)

    def test_detached_capture_returns_its_error(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            future = xp.trace_detached("127.0.0.1:1", self.folder, duration_ms=50, num_tracing_attempts=1)
            with self.assertRaisesRegex(stepscope.CaptureError, "refused"):
                future.result(timeout=30)
            for thread in threading.enumerate():
                if thread.name == "stepscope-trace-detached":
                    thread.join()
        self.assertIn("the detached capture failed", str(caught[-1].message))


if __name__ == "__main__":
    unittest.main()
