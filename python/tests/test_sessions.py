import asyncio
import gzip
import inspect
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
import warnings
from pathlib import Path

import xspace
from recorded import files, run_python

import stepscope

NO_CALLS = stepscope.ProfileOptions(python_tracer_level=0)


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Sessions(InAFolder):
    def test_stop_writes_the_recording(self):
        self.assertFalse(stepscope.is_recording())
        stepscope.start_trace(self.folder, options=NO_CALLS)
        self.assertTrue(stepscope.is_recording())
        with stepscope.Trace("x"):
            pass
        self.assertTrue(stepscope.flush_trace())
        report = stepscope.stop_trace()
        self.assertFalse(stepscope.is_recording())
        self.assertEqual(report.spans, 1)
        self.assertEqual(report.size_bytes, report.path.stat().st_size)
        self.assertEqual(files(self.folder), [report.path])
        found = xspace.read(report.path)
        self.assertEqual(found.stats["kind.Python"], 1)
        self.assertNotIn("kind.Rust", found.stats)
        self.assertEqual(found.stats["python_version"], sys.version.split()[0])
        self.assertEqual(found.stats["profile_options.python_tracer_level"], 0)

    def test_recording_at_its_limit_keeps_the_latest_events_or_stops(self):
        for at_limit in ("keep_latest", "stop"):
            options = stepscope.ProfileOptions(
                python_tracer_level=0, max_bytes=1 << 20, keep_free_bytes=0, at_limit=at_limit
            )
            folder = self.folder / at_limit
            stepscope.start_trace(folder, options=options)
            for step in range(100):
                with stepscope.StepTrace("train", step_num=step):
                    for _ in range(1_000):
                        with stepscope.Trace("x"):
                            pass
                stepscope.flush_trace()
            self.assertEqual(stepscope.is_recording(), at_limit == "keep_latest")
            report = stepscope.stop_trace()
            said = [text for text in report.warnings if "limit of 1 MiB (max_bytes)" in text]
            self.assertEqual(len(said), 1, report.warnings)
            self.assertLess(report.spans, 70_000)
        with self.assertRaises(stepscope.OptionValueError):
            stepscope.ProfileOptions(at_limit="later")

    def test_second_start_is_refused(self):
        stepscope.start_trace(str(self.folder))
        message = "Profile has already been started. Only one profile may be run at a time."
        with self.assertRaisesRegex(RuntimeError, message) as caught:
            stepscope.start_trace(self.folder / "other")
        self.assertIsInstance(caught.exception, stepscope.SessionActiveError)
        self.assertIn(str(self.folder), str(caught.exception))

        def after():
            pass

        after()
        report = stepscope.stop_trace()
        self.assertFalse((self.folder / "other").exists())
        self.assertTrue(any(name.endswith("after") for name in xspace.read(report.path).names()))

    def test_second_stop_is_an_error(self):
        for stop in (stepscope.stop_trace, stepscope.discard_trace):
            with self.assertRaisesRegex(RuntimeError, "No profile started") as caught:
                stop()
            self.assertIsInstance(caught.exception, stepscope.NoSessionError)
            self.assertIsInstance(caught.exception, stepscope.StepscopeError)

    def test_discard_leaves_no_files(self):
        stepscope.start_trace(self.folder)
        stepscope.discard_trace()
        self.assertEqual(list(self.folder.rglob("*.pb")), [])
        self.assertFalse(stepscope.is_recording())

    def test_sessions_within_one_second_have_two_folders(self):
        for _ in range(2):
            with stepscope.trace(self.folder, options=NO_CALLS):
                pass
        self.assertEqual(len(files(self.folder)), 2)

    def test_unusable_log_directory_is_an_error(self):
        in_the_way = self.folder / "file"
        in_the_way.write_text("")
        with self.assertRaises(OSError) as caught:
            stepscope.start_trace(in_the_way)
        self.assertIsInstance(caught.exception, stepscope.LogDirectoryError)
        self.assertIn(str(in_the_way), str(caught.exception))
        # Nothing goes on as if it had been started.
        self.assertIsNone(sys.getprofile())
        self.assertFalse(stepscope.is_recording())

    def test_block_that_raises_is_written(self):
        with self.assertRaises(ZeroDivisionError):
            with stepscope.trace(self.folder, options=NO_CALLS) as recording:
                with stepscope.Trace("failing"):
                    1 / 0
        self.assertEqual(xspace.read(recording.report.path).names(), {"failing"})

    def test_block_may_stop_its_recording(self):
        with self.assertRaises(stepscope.NoSessionError):
            with stepscope.trace(self.folder, options=NO_CALLS):
                stepscope.stop_trace()
        with self.assertRaises(ZeroDivisionError), self.assertWarns(stepscope.StepscopeWarning):
            with stepscope.trace(self.folder, options=NO_CALLS):
                stepscope.stop_trace()
                1 / 0

    def test_trace_decorates_coroutines_and_generators(self):
        recorded = stepscope.trace(self.folder, options=NO_CALLS)

        @recorded
        async def coroutine():
            await asyncio.sleep(0)
            with stepscope.Trace("x"):
                await asyncio.sleep(0)
            return 1

        @recorded
        def generator():
            yield 1
            with stepscope.Trace("x"):
                yield 2
            return 3

        @recorded
        async def stream():
            yield 1
            with stepscope.Trace("x"):
                yield 2

        async def read():
            return [value async for value in stream()]

        for work, expected in (
            (lambda: asyncio.run(coroutine()), 1),
            (lambda: list(generator()), [1, 2]),
            (lambda: asyncio.run(read()), [1, 2]),
        ):
            self.assertEqual(work(), expected)
            self.assertFalse(stepscope.is_recording())
            self.assertEqual(len(xspace.read(recorded.report.path).named("x")), 1)
        self.assertEqual(len(files(self.folder)), 3)
        self.assertTrue(inspect.iscoroutinefunction(coroutine))
        self.assertTrue(inspect.isasyncgenfunction(stream))

    def test_trace_decorates_functions(self):
        @stepscope.trace(self.folder, options=NO_CALLS)
        def train():
            with stepscope.Trace("inside"):
                pass

        train()
        train()
        self.assertEqual([xspace.read(path).names() for path in files(self.folder)], [{"inside"}] * 2)

    def test_spans_open_at_start_or_stop_are_handled(self):
        with stepscope.Trace("before"):
            stepscope.start_trace(self.folder, options=NO_CALLS)
        across = stepscope.Trace("across")
        across.__enter__()
        report = stepscope.stop_trace()
        across.__exit__(None, None, None)
        found = xspace.read(report.path)
        self.assertEqual(found.names(), {"across"})
        self.assertEqual(report.unfinished, 1)

    def test_session_and_host_names_are_used(self):
        options = stepscope.ProfileOptions(session_id="run7", host_name="here", python_tracer_level=0)
        with stepscope.trace(self.folder, options=options) as recording:
            pass
        self.assertEqual(recording.report.path, self.folder / "plugins/profile/run7/here.xplane.pb")
        bad = stepscope.ProfileOptions(session_id="../up")
        with self.assertRaises(ValueError):
            stepscope.start_trace(self.folder, options=bad)

    def test_options_without_effect_are_warnings(self):
        options = stepscope.ProfileOptions(duration_ms=100, python_tracer_level=0)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with stepscope.trace(self.folder, options=options) as recording:
                pass
        # Once, and where the program began it.
        self.assertEqual([one.filename for one in seen], [__file__])
        self.assertIn("duration_ms has no effect", str(seen[0].message))
        self.assertIn("duration_ms has no effect", xspace.read(recording.report.path).warnings[0])

    def test_options_of_another_class_are_type_errors(self):
        with self.assertRaisesRegex(TypeError, "ProfileOptions, not dict"):
            stepscope.start_trace(self.folder, options={})


class Perfetto(InAFolder):
    def test_perfetto_json_has_the_name_of_jax(self):
        with stepscope.trace(self.folder, options=NO_CALLS, create_perfetto_trace=True) as recording:
            with stepscope.Trace("x"):
                pass
        self.assertEqual(recording.report.trace_json.name, "perfetto_trace.json.gz")
        content = json.loads(gzip.decompress(recording.report.trace_json.read_bytes()))
        self.assertIn("x", {event.get("name") for event in content["traceEvents"]})

    def test_perfetto_link_serves_one_file_once(self):
        from stepscope.recording import _perfetto_link

        path = self.folder / "perfetto_trace.json.gz"
        path.write_bytes(b"content")
        (self.folder / "secret").write_text("")
        with subprocess.Popen(
            [sys.executable, "-c", SERVE, str(path)], stdout=subprocess.PIPE, text=True
        ) as server:
            address = server.stdout.readline().split("url=")[1].strip()
            self.assertTrue(address.endswith("/perfetto_trace.json.gz"))
            for wrong in ("/secret", "/../secret", "/"):
                with self.assertRaises(urllib.error.HTTPError):
                    urllib.request.urlopen(address.replace("/perfetto_trace.json.gz", wrong))
            with urllib.request.urlopen(address) as answer:
                self.assertEqual(answer.read(), b"content")
                allowed = answer.headers["Access-Control-Allow-Origin"]
            self.assertEqual(server.wait(60), 0)
        self.assertEqual(allowed, "https://ui.perfetto.dev")
        self.assertEqual(_perfetto_link.PORT, 9001)

    def test_perfetto_link_ignores_idle_connections(self):
        path = self.folder / "perfetto_trace.json.gz"
        path.write_bytes(gzip.compress(b"{}"))
        program = subprocess.Popen([sys.executable, "-c", SERVE, path], stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        address = program.stdout.readline().split("url=")[1].strip()
        port = int(address.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)):
            with urllib.request.urlopen(address, timeout=30) as answer:
                self.assertEqual(gzip.decompress(answer.read()), b"{}")
            self.assertEqual(program.wait(timeout=60), 0)

    def test_perfetto_link_on_a_busy_port_is_a_warning(self):
        from stepscope.recording import _perfetto_link

        with socket.create_server(("127.0.0.1", 0)) as taken:
            path = self.folder / "perfetto_trace.json.gz"
            path.write_bytes(b"")
            with self.assertWarnsRegex(stepscope.StepscopeWarning, "drop this file"):
                self.assertFalse(_perfetto_link.serve_once(path, taken.getsockname()[1]))


SERVE = """
import pathlib, socket, sys
from stepscope.recording import _perfetto_link
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
_perfetto_link.serve_once(pathlib.Path(sys.argv[1]), port)
"""


class Endings(InAFolder):
    """However a program ends, its recording is there."""

    def names(self):
        found = files(self.folder)
        self.assertEqual(len(found), 1, list(self.folder.rglob("*")))
        return xspace.read(found[0])

    def test_recording_is_written_without_stop_trace(self):
        done = run_python(
            """
            import sys, stepscope
            stepscope.start_trace(sys.argv[1])
            def work(): pass
            work()
            with stepscope.Trace("inside"): pass
            def never():
                with stepscope.Trace("never"):
                    yield
            kept = never()
            next(kept)
            """,
            self.folder,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual({"inside", "never", "$<string>:4 work"}, self.names().names())

    def test_recording_is_written_after_an_exception(self):
        done = run_python(
            """
            import sys, stepscope
            with stepscope.trace(sys.argv[1]):
                with stepscope.Trace("inside"): raise KeyError("mine")
            """,
            self.folder,
        )
        self.assertIn("KeyError: 'mine'", done.stderr)
        self.assertIn("inside", self.names().names())

    def test_recording_is_written_while_threads_run(self):
        done = run_python(
            """
            import sys, threading, time, stepscope
            stepscope.start_trace(sys.argv[1])
            beats = threading.Event()
            def forever():
                while True:
                    with stepscope.Trace("beat"): time.sleep(0.0001)
                    beats.set()
            threading.Thread(target=forever, daemon=True).start()
            beats.wait()
            """,
            self.folder,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("beat", self.names().names())

    def test_recording_is_recovered_after_os_exit(self):
        done = run_python(
            """
            import os, sys, stepscope
            stepscope.start_trace(sys.argv[1])
            with stepscope.Trace("open"):
                with stepscope.Trace("inside"): pass
                os._exit(3)
            """,
            self.folder,
        )
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(files(self.folder), [])
        recovered = subprocess.run(
            [sys.executable, "-m", "stepscope", "recover", str(self.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(recovered.returncode, 0, recovered.stderr)
        self.assertLessEqual({"inside", "open"}, self.names().names())

    def test_recording_is_written_after_ctrl_c(self):
        code = """if True:
            import signal, sys, time, stepscope
            # Programs in the background of a shell without job control ignore it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with stepscope.trace(sys.argv[1]):
                with stepscope.Trace("inside"):
                    print("ready", flush=True)
                    # A signal right before a sleep does not end that one.
                    while True: time.sleep(0.1)
            """
        program = subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with program:
            program.stdout.readline()
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", errors)
        self.assertIn("inside", self.names().names())

    def test_forked_child_is_not_recorded(self):
        done = run_python(
            """
            import os, sys, stepscope
            stepscope.start_trace(sys.argv[1])
            def of_child(): pass
            with stepscope.Trace("before"): pass
            child = os.fork()
            if child == 0:
                assert not stepscope.is_recording()
                of_child()
                with stepscope.Trace("child"): pass
                assert sys.getprofile() is None
                stepscope.start_trace(sys.argv[1] + "/own")
                of_child()
                assert stepscope.stop_trace().spans >= 1
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            with stepscope.Trace("after"): pass
            stepscope.stop_trace()
            """,
            self.folder,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = self.names().names()
        self.assertLessEqual({"before", "after"}, found)
        self.assertNotIn("child", found)
        self.assertFalse(any(name.endswith("of_child") for name in found))
        own = files(self.folder / "own")
        self.assertEqual(len(own), 1)
        self.assertTrue(any(name.endswith("of_child") for name in xspace.read(own[0]).names()))

    def test_threads_may_start_and_stop_concurrently(self):
        problems = []

        def thread(number):
            for _ in range(5):
                try:
                    stepscope.start_trace(self.folder)
                    stepscope.stop_trace()
                except stepscope.SessionError:
                    continue
                except BaseException as error:
                    problems.append((number, error))

        threads = [threading.Thread(target=thread, args=(n,)) for n in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        self.assertEqual(problems, [])
        if stepscope.is_recording():
            stepscope.stop_trace()
        self.assertGreaterEqual(len(files(self.folder)), 1)
        self.assertIsNone(sys.getprofile())


if __name__ == "__main__":
    unittest.main()
