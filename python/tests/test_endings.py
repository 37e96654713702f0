"""However a program ends, and whatever records it: its recording is there, and nothing hangs."""

import signal
import sys
import tempfile
import threading
import unittest
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xspace
from recorded import files, record, run_python

import stepscope

# What records, by name.
SESSIONS = {
    "plain": "stepscope.start_trace(LOGS, options=stepscope.ProfileOptions(python_tracer_level=0))",
    "calls": "stepscope.start_trace(LOGS)",
    "sampling": "stepscope.start_trace(LOGS, options=stepscope.ProfileOptions(python_sampling_hz=500))",
    "served": "stepscope.start_server(0); stepscope.start_trace(LOGS)",
    "in_memory": "stepscope.start_trace(LOGS, options=stepscope.ProfileOptions(crash_safe=False))",
}
BEGIN = """\
import asyncio, atexit, contextlib, os, signal, sys, threading, time, warnings
import stepscope
LOGS = sys.argv[1]
# A busy machine takes some late, which is said.
warnings.filterwarnings("ignore", ".*samples of the Python stacks", stepscope.StepscopeWarning)
{session}
def work(name):
    with stepscope.Trace(name):
        sum(range(1000))
work("inside")
"""
# How it ends: the code, the exit code, and whether the process has the time to write its file.
ENDINGS = {
    "no stop": ("", 0, True),
    "exception": ("raise LookupError", 1, True),
    "exit in a span": ("with stepscope.Trace('open'): sys.exit(5)", 5, True),
    "generators": (
        """
def never():
    with stepscope.Trace("open"):
        yield
async def never_too():
    with stepscope.Trace("open"):
        yield
kept = [never() for _ in range(3)]
for one in kept:
    next(one)
async def main():
    kept.append(never_too())
    await kept[-1].__anext__()
    asyncio.create_task(asyncio.sleep(100))
asyncio.run(main())
""",
        0,
        True,
    ),
    "daemon threads": (
        """
def forever(beats):
    work("beat")
    beats.set()
    while True:
        work("beat")
beating = [threading.Event() for _ in range(4)]
for beats in beating:
    threading.Thread(target=forever, args=(beats,), daemon=True).start()
for beats in beating:
    beats.wait()
""",
        0,
        True,
    ),
    "a stop that another thread has begun": (
        """
threading.Thread(target=stepscope.stop_trace, daemon=True).start()
""",
        0,
        True,
    ),
    "started by a thread that is gone": (
        """
stepscope.stop_trace()
def start():
    stepscope.start_trace(LOGS)
    work("by thread")
thread = threading.Thread(target=start)
thread.start()
thread.join()
""",
        0,
        True,
    ),
    "SIGTERM with a handler": (
        """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""",
        4,
        True,
    ),
    "SIGTERM with a handler that stops": (
        """
def handler(*_):
    stepscope.stop_trace()
    sys.exit(4)
signal.signal(signal.SIGTERM, handler)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""",
        4,
        True,
    ),
    "Ctrl-C": (
        """
signal.signal(signal.SIGINT, signal.default_int_handler)
inside = threading.Event()
def press():
    inside.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
with stepscope.Trace("open"):
    inside.set()
    # A signal right before a sleep does not end that one.
    while True: time.sleep(0.1)
""",
        -signal.SIGINT,
        True,
    ),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, False),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, False),
    "SIGSEGV": (
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "os.kill(os.getpid(), signal.SIGSEGV); time.sleep(60)",
        -signal.SIGSEGV,
        False,
    ),
    "os._exit": ("with stepscope.Trace('open'): os._exit(3)", 3, False),
    "a fork that exits": (
        """
child = os.fork()
work("child" if child == 0 else "parent")
if child:
    os.waitpid(child, 0)
""",
        0,
        True,
    ),
    "a fork that goes by os._exit": (
        """
child = os.fork()
if child == 0:
    work("child")
    os._exit(0)
os.waitpid(child, 0)
""",
        0,
        True,
    ),
    "the log directory is gone": ("import shutil; shutil.rmtree(LOGS)", 0, True),
}


@unittest.skipUnless(sys.platform == "linux", "signals and forks")
class Endings(unittest.TestCase):
    def end(self, session, ending):
        """What is wrong with this pair."""
        code, expected, in_time = ENDINGS[ending]
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(BEGIN.format(session=SESSIONS[session]) + code, folder, timeout=120)
            if done.returncode != expected:
                return f"exit code {done.returncode}, not {expected}: {done.stderr}"
            if expected == 0 and done.stderr:
                return f"it says: {done.stderr}"
            written = files(folder)
            if in_time and len(written) < 1:
                return f"no file: {sorted(map(str, Path(folder).rglob('*')))} {done.stderr}"
            if session == "in_memory" and not in_time:
                return None
            # A later look finds what a killed program left.
            names = names_in(folder)
            if "inside" not in names:
                return f"what was recorded is not there: {sorted(names)[:20]}"
            if ending.startswith("a fork") and "child" in names:
                return "the child was recorded by the parent's session"
            return None

    def check(self, session):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda ending: self.end(session, ending), ENDINGS))
        for ending, problem in zip(ENDINGS, found, strict=True):
            with self.subTest(ending):
                self.assertIsNone(problem)


def names_in(folder):
    names = set()
    for run in stepscope.open(folder, use_cache=False):
        names.update(event.name for track in run.tracks for event in track.slices)
    return names


for session in SESSIONS:
    setattr(Endings, f"test_{session}", lambda self, session=session: self.check(session))
del session


INTERRUPTED = """
import random, signal, sys, warnings, faulthandler
import stepscope
faulthandler.dump_traceback_later(50, exit=True)
warnings.simplefilter("ignore")
LOGS, how = sys.argv[1:]
random.seed(7)
OPTIONS = [dict(python_tracer_level=0), dict(), dict(python_sampling_hz=500), dict(crash_safe=False)]
def handler(*_):
    if how == "raises":
        raise KeyboardInterrupt
    if how == "annotates":
        with stepscope.Trace("handler", a=1): pass
    if how == "stops":
        try:
            stepscope.stop_trace()
        except stepscope.SessionError:
            pass
signal.signal(signal.SIGALRM, handler)
begun = 0
for n in range(80):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + 0.01 * random.random())
        stepscope.start_trace(LOGS, options=stepscope.ProfileOptions(**OPTIONS[n % 4]))
        begun += 1
        with stepscope.Trace("inside"): sum(range(1000))
        stepscope.stop_trace()
    except KeyboardInterrupt:
        pass
    except stepscope.SessionError:
        if how != "stops":
            raise
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    try:
        # It was in the middle of something: what there is can be stopped as ever, once.
        stepscope.stop_trace()
        stepscope.stop_trace()
    except stepscope.NoSessionError:
        pass
    assert not stepscope.is_recording() and sys.getprofile() is None
print(begun)
"""

IN_CHILDREN = """
import multiprocessing, sys
import stepscope
def child(log_dir):
    stepscope.start_trace(log_dir)
    with stepscope.Trace("in child"): pass
    raise SystemExit(3)
if __name__ == "__main__":
    log_dir, method, records = sys.argv[1:]
    stepscope.start_server(0)
    if records == "records":
        stepscope.start_trace(log_dir + "/parent")
    process = multiprocessing.get_context(method).Process(target=child, args=(log_dir + "/child",))
    process.start()
    process.join(50)
    assert process.exitcode == 3, process.exitcode
"""


class Interrupted(unittest.TestCase):
    """Signals in the middle of `start_trace` and `stop_trace`."""

    def interrupt(self, how):
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(INTERRUPTED, folder, how)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            written = len(files(folder))
            # Ctrl-C inside of `start_trace` may come before or after there is something.
            self.assertGreaterEqual(written, int(done.stdout))
            self.assertLessEqual(written, 80)
            left = list(Path(folder).glob("plugins/profile/*/.*"))
            self.assertEqual(left, [])

    def test_ctrl_c_keeps_the_recording(self):
        self.interrupt("raises")

    def test_signal_handler_may_stop_the_recording(self):
        self.interrupt("stops")

    def test_signal_handler_may_annotate(self):
        self.interrupt("annotates")


class Children(unittest.TestCase):
    """Processes of `multiprocessing` end by `os._exit` and call no handlers of `atexit`."""

    def test_children_of_every_start_method_can_record(self):
        for method in ("fork", "spawn", "forkserver"):
            for records in ("records", "no"):
                with self.subTest(method=method, records=records), tempfile.TemporaryDirectory() as folder:
                    program = Path(folder) / "program.py"
                    program.write_text(IN_CHILDREN)
                    done = run_python(
                        "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')",
                        program,
                        folder,
                        method,
                        records,
                    )
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    (of_child,) = files(Path(folder) / "child")
                    self.assertIn("in child", xspace.read(of_child).names())
                    # The program's own, and what the child did before it recorded itself.
                    of_parent = files(Path(folder) / "parent")
                    self.assertEqual(len(of_parent), 2 * int(records == "records"))

    def test_a_recovered_recording_is_named_after_the_process_that_recorded(self):
        killed = """
        import os, signal, sys
        import stepscope
        def start():
            options = stepscope.ProfileOptions(python_tracer_level=0, session_id="one", host_name="host")
            stepscope.start_trace(sys.argv[1], options=options)
        start()
        child = os.fork()
        if child == 0:
            start()
            with stepscope.Trace("in child"): pass
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        stepscope.stop_trace()
        print(child)
        """
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(killed, folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("in child", names_in(folder))
            child = int(done.stdout)
            names = {path.name: xspace.read(path).stats["process_id"] for path in files(folder)}
            self.assertEqual(names.pop(f"host_{child}.xplane.pb"), child)
            self.assertEqual(list(names), ["host.xplane.pb"])


class NoRoom(unittest.TestCase):
    """Disks that are full, and directories that cannot be."""

    LIMITED = """
        import os, resource, signal, sys, warnings, stepscope
        def limit(to):
            resource.setrlimit(resource.RLIMIT_FSIZE, (to, resource.RLIM_INFINITY))
        stepscope.start_trace(sys.argv[1], options=stepscope.ProfileOptions(python_tracer_level=0))
        for n in range(20_000):
            with stepscope.Trace("inside", n=n): pass
        limit(64 << 10)
    """

    def test_a_recording_that_cannot_be_written_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(
                self.LIMITED
                + """
        try:
            stepscope.stop_trace()
        except OSError as error:
            assert isinstance(error, stepscope.LogDirectoryError), error
        else:
            raise AssertionError("it was written")
        limit(resource.RLIM_INFINITY)
        warnings.simplefilter("ignore")
        assert stepscope.stop_trace().spans == 20_000
        """,
                folder,
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(len(files(folder)), 1)

    def test_failed_write_at_exit_is_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(self.LIMITED, folder)
            self.assertRegex(done.stderr, "^stepscope: cannot write the recording .*\nhelp: .*\n$")
            self.assertEqual(done.stderr.count("\n"), 2)
            self.assertEqual(files(folder), [])
            # What is left is a recording of a program that has gone.
            self.assertIn("inside", names_in(folder))

    def test_devices_and_files_as_log_directory_are_refused(self):
        for place in ("/dev/full", "/dev/null", "/proc/nowhere", __file__, "nul\0byte"):
            with self.subTest(place), self.assertRaises((stepscope.LogDirectoryError, ValueError)):
                stepscope.start_trace(place)
            self.assertFalse(stepscope.is_recording())
            self.assertIsNone(sys.getprofile())


class Odd(unittest.TestCase):
    """Arguments, names and stacks that nobody would write on purpose."""

    def test_dropping_a_span_keeps_the_pending_exception(self):
        class Text:
            def __str__(self):
                return "text"

        class Raises:
            def __str__(self):
                raise LookupError

        def takes(*_):
            pass

        def work():
            for value in (Text(), Raises(), "lone \ud800"):
                with self.assertRaises(ZeroDivisionError):
                    takes(stepscope.Trace("lone \ud800", a=value).__enter__(), 1 / 0)

        self.assertEqual(len(record(work).events), 3)

    def test_ctrl_c_inside_str_of_an_argument_propagates(self):
        class Interrupts:
            def __str__(self):
                raise KeyboardInterrupt

        def work():
            with self.assertRaises(KeyboardInterrupt):
                with stepscope.Trace("x", a=Interrupts()):
                    for _ in range(1000):
                        pass

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            record(work)
        finally:
            signal.signal(signal.SIGINT, before)

    def test_str_of_an_argument_may_use_the_label(self):
        class Recurses:
            def __str__(self):
                with self.trace:
                    return "never"

        class Stops:
            def __str__(self):
                stepscope.stop_trace()
                return "stopped"

        with tempfile.TemporaryDirectory() as folder:
            for level in (0, 1):
                stepscope.start_trace(folder, options=stepscope.ProfileOptions(python_tracer_level=level))
                one = Recurses()
                one.trace = stepscope.Trace("recurses", one=one)
                with one.trace:
                    pass
                with stepscope.Trace("stops", one=Stops()):
                    pass
                self.assertFalse(stepscope.is_recording())
            self.assertEqual(len(files(folder)), 2)

    def test_deep_recursion_is_recorded(self):
        def deep(n):
            with stepscope.Trace("deep"):
                return n and 1 + deep(n - 1)

        def work():
            deep(2_000)
            with self.assertRaises(RecursionError):
                deep(1_000_000)

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(5_000)
        try:
            found = record(work, python_tracer_level=1)
        finally:
            sys.setrecursionlimit(limit)
        self.assertGreater(len(found.named("deep")), 4_000)

    def test_thousands_of_threads_are_recorded(self):
        def one():
            with stepscope.Trace("of thread"):
                pass

        def work():
            for _ in range(2_000):
                thread = threading.Thread(target=one)
                thread.start()
                thread.join()

        for level in (0, 1):
            self.assertEqual(len(record(work, python_tracer_level=level).named("of thread")), 2_000)

    def test_huge_and_unusual_metadata_is_recorded(self):
        odd = {"a b": 1, "\n": 2, "\0": 3, "": 4, "lone \ud800": 5}
        values = {"text": "y" * 10_000_000, "bytes": b"\xff", "large": 10**4000, "nan": float("nan")}

        def work():
            for name in ("a\0b", "a\nb", "\x1b[31m", "x" * 10_000_000):
                with stepscope.Trace(name, **odd):
                    pass
            with stepscope.Trace("values", **values):
                pass

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stepscope.StepscopeWarning)
            found = record(work)
        (shown,) = found.named("values")
        self.assertEqual(set(shown.stats), set(values))
        self.assertEqual(set(shown.stats["text"]), {"y"})
        self.assertLessEqual({"a\0b", "a\nb", "\x1b[31m"}, found.names())
        self.assertEqual(len(found.names()), 5)
        for event in found.events:
            if event.name != "values":
                self.assertEqual(sorted(event.stats.values()), [1, 2, 3, 4, 5])


if __name__ == "__main__":
    unittest.main()
