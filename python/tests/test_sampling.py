import itertools
import os
import sys
import tempfile
import threading
import time
import unittest
import warnings

import xspace
from recorded import files, run_python

import stepscope
from stepscope import _core

WAIT_S = 120


def wait_until(what, holds):
    """Run Python code, which the sampler sees as this function, until the condition holds."""
    until = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"waited {WAIT_S} s for {what}")


def await_samples(count):
    """Wait until that many samples have been taken from now on."""
    taken = _core.sampling_counts()[0] + count
    wait_until(f"{count} samples", lambda: _core.sampling_counts()[0] >= taken)


def mark_samples(mark, count):
    """
    Record a span in the middle of the samples that are taken from now on.

    The caller's function is in a sample before the span, in `count` within it, and in one after it: its slice
    contains the span on every machine.
    """
    await_samples(1)
    with stepscope.Trace(mark):
        await_samples(count)
    await_samples(1)


def hot(count=3):
    mark_samples("mark of hot", count)


def cold(count=1):
    mark_samples("mark of cold", count)


def work(rounds=6):
    for _ in range(rounds):
        hot()
        cold()


def sampled(program, *, hz=100, **options):
    """The run that a program leaves, and how many samples were taken and missed."""
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stepscope.StepscopeWarning)
            asked = stepscope.ProfileOptions(python_sampling_hz=hz, **options)
            with stepscope.trace(folder, options=asked, sources=[]) as recording:
                program()
        run = stepscope.open(recording.report.path, use_cache=False).run
        counts = run.search("sampling", tracks=[track for track in run.tracks if len(track.instants)])
        return run, counts.events[0].args if counts.events else {}


def function(event):
    """The name of a sampled function, without its file."""
    return event.name.split()[-1]


def slices_of(track, name):
    return [event for event in track.slices if function(event) == name]


def end_ps(event):
    return event.start_ps + event.duration_ps


def marks(run):
    """The spans of `mark_samples`, in the order of time."""
    found = [event for track in run.tracks for event in track.slices if event.name.startswith("mark of ")]
    return sorted(found, key=lambda event: event.start_ps)


class Samples(unittest.TestCase):
    def assert_contains(self, outer, inner):
        self.assertLessEqual(outer.start_ps, inner.start_ps, f"{outer} {inner}")
        self.assertGreaterEqual(end_ps(outer), end_ps(inner), f"{outer} {inner}")

    def assert_work(self, run, track, rounds=6):
        """One slice of `work`, and in it one of each call of `hot` and `cold`, around that call's mark."""
        (outer,) = slices_of(track, "work")
        calls = [event for event in track.slices if function(event) in ("hot", "cold")]
        self.assertEqual([function(event) for event in calls], ["hot", "cold"] * rounds)
        spans = marks(run)
        self.assertEqual(len(spans), len(calls))
        for call, span in zip(calls, spans, strict=True):
            self.assertEqual(span.name, f"mark of {function(call)}")
            self.assertEqual((call.parent.name, call.parent.start_ps), (outer.name, outer.start_ps))
            self.assert_contains(outer, call)
            self.assert_contains(call, span)
        for n, call in enumerate(calls[:-1]):
            self.assertLessEqual(end_ps(call), calls[n + 1].start_ps)
            self.assertLessEqual(end_ps(call), spans[n + 1].start_ps)

    def test_main_thread_is_sampled(self):
        run, counts = sampled(work)
        track = run.track("MainThread (sampled)")
        self.assert_work(run, track)
        self.assertEqual(counts["samples_per_s"], 100.0)
        self.assertEqual(track.tid, threading.get_native_id())
        inside = slices_of(track, "hot")[0]
        self.assertTrue(inside.name.startswith("$test_sampling.py:"))
        self.assertTrue(inside.parent.name.endswith(" work"))

    def test_main_thread_has_a_name_without_the_threading_module(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(
                """
                import sys, stepscope
                from stepscope import _core
                def spin(samples):
                    until = _core.sampling_counts()[0] + samples
                    while _core.sampling_counts()[0] < until: pass
                options = stepscope.ProfileOptions(python_sampling_hz=200)
                with stepscope.trace(sys.argv[1], options=options):
                    spin(3)
                    print("threading" in sys.modules)
                    import threading
                    spin(3)
                """,
                folder,
                timeout=WAIT_S,
            )
            self.assertEqual(done.stdout.strip(), "False", done.stderr)
            run = stepscope.open(folder, use_cache=False).run
        rows = [track.name for track in run.tracks if any("spin" in one.name for one in track.slices)]
        self.assertEqual(rows, ["MainThread (sampled)"])

    def test_other_threads_are_sampled(self):
        main = threading.get_ident()

        def is_joining():
            frame = sys._current_frames()[main]
            while frame and frame.f_code.co_name != "join":
                frame = frame.f_back
            return frame

        def work_while_joined():
            wait_until("the main thread joins", is_joining)
            await_samples(1)
            work()

        def program():
            thread = threading.Thread(target=work_while_joined, name="worker")
            thread.start()
            thread.join()

        run, _ = sampled(program, hz=200)
        worker = run.track("worker (sampled)")
        self.assert_work(run, worker)
        (join,) = slices_of(run.track("MainThread (sampled)"), "join")
        for span in marks(run):
            self.assert_contains(join, span)

    def test_waiting_thread_is_sampled_at_its_wait(self):
        waits = threading.Lock()
        waits.acquire()

        def waiting():
            # In C, without the interpreter's lock, up to the release.
            waits.acquire()

        def release():
            wait_until("the main thread waits", is_waiting)
            hot(count=10)
            waits.release()

        main = threading.get_ident()

        def is_waiting():
            return sys._current_frames()[main].f_code is waiting.__code__

        def program():
            thread = threading.Thread(target=release)
            thread.start()
            waiting()
            thread.join()

        run, counts = sampled(program)
        (wait,) = slices_of(run.track("MainThread (sampled)"), "waiting")
        (span,) = marks(run)
        self.assert_contains(wait, span)
        self.assertGreaterEqual(counts["taken"], 12)

    def test_consecutive_equal_samples_become_one_slice(self):
        run, counts = sampled(lambda: hot(count=50), hz=200)
        (event,) = slices_of(run.track("MainThread (sampled)"), "hot")
        (span,) = marks(run)
        self.assert_contains(event, span)
        self.assertGreaterEqual(counts["taken"], 52)

    def test_sample_lasts_until_the_next_one(self):
        def first():
            await_samples(1)

        def second():
            await_samples(1)

        def program():
            for _ in range(20):
                first()
                second()

        run, _ = sampled(program)
        track = run.track("MainThread (sampled)")
        slices = [event for event in track.slices if function(event) in ("first", "second")]
        self.assertGreaterEqual(len(slices), 20)
        for event, following in itertools.pairwise(slices):
            # Where samples were missed, it ends earlier, but not before a period.
            if end_ps(event) != following.start_ps:
                self.assertGreaterEqual(event.duration_ps, 10**12 // 100)

    def test_every_period_is_a_sample_taken_or_missed(self):
        def settle():
            """Return a sum of samples: of all periods up to the first time, of none after the second."""
            start = time.monotonic_ns()
            # The second sample was asked for after the first one was taken.
            await_samples(2)
            accounted = sum(_core.sampling_counts())
            return start, accounted, time.monotonic_ns()

        def program():
            settled.append(settle())
            hot(count=50)
            settled.append(settle())

        for hz in (100, 1000):
            settled = []
            _, counts = sampled(program, hz=hz)
            (first_begin, first, first_end), (last_begin, last, last_end) = settled
            self.assertGreaterEqual(last - first, (last_begin - first_end) * hz // 10**9)
            self.assertLessEqual(last - first, (last_end - first_begin) * hz // 10**9 + 1)
            self.assertGreaterEqual(counts["taken"], 56)
            self.assertGreaterEqual(counts["taken"] + counts["missed"], last)
            self.assertEqual(counts["samples_per_s"], float(hz))


class Options(unittest.TestCase):
    def test_sampling_turns_call_tracing_off(self):
        options = stepscope.ProfileOptions
        self.assertTrue(options().traces_calls)
        self.assertFalse(options(python_sampling_hz=100).traces_calls)
        both = options(python_sampling_hz=100, python_tracer_level=1)
        self.assertTrue(both.traces_calls)
        self.assertFalse(options(python_tracer_level=0).traces_calls)
        import copy
        import pickle

        for again in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
            self.assertTrue(again.traces_calls)
            self.assertEqual(again, both)
        alone = pickle.loads(pickle.dumps(options(python_sampling_hz=100)))
        self.assertFalse(alone.traces_calls)
        with self.assertRaises(stepscope.OptionValueError):
            options(python_sampling_hz=10_001)

    def test_sampling_is_off_by_default_and_at_level_0(self):
        for options in ({"hz": 0, "python_tracer_level": 0}, {"host_tracer_level": 0}):
            counts = []
            run, event = sampled(lambda: counts.append(_core.sampling_counts()), **options)  # noqa: B023
            self.assertEqual((counts, event), ([None], {}))
            self.assertEqual([track for track in run.tracks if "sampled" in track.name], [])

    def test_sampling_and_call_tracing_can_run_together(self):
        run, _ = sampled(hot, python_tracer_level=1)
        names = {event.name.split()[-1] for track in run.tracks for event in track.slices}
        self.assertIn("hot", names)
        self.assertTrue(any(track.name == "MainThread (sampled)" for track in run.tracks))
        self.assertTrue(
            any(
                event.name.endswith(" hot")
                for track in run.tracks
                if "sampled" not in track.name
                for event in track.slices
            )
        )

    def test_switch_interval_is_restored(self):
        before = sys.getswitchinterval()
        sampled(hot, hz=1000)
        self.assertEqual(sys.getswitchinterval(), before)

    def test_consecutive_recordings_are_sampled(self):
        for _ in range(3):
            run, _ = sampled(hot)
            self.assertEqual(len(slices_of(run.track("MainThread (sampled)"), "hot")), 1)


class Ends(unittest.TestCase):
    """Programs that end in odd ways, while they are sampled."""

    PROGRAM = """
        import os, signal, sys, threading, stepscope
        from stepscope import _core
        stepscope.start_trace(sys.argv[1], options=stepscope.ProfileOptions(python_sampling_hz=500))
        def spin(samples):
            # None while the program ends.
            while (counts := _core.sampling_counts()) and counts[0] < samples:
                sum(range(100))
        # The first one is in the recording when the second one is asked for.
        spin(3)
    """

    def end(self, how):
        with tempfile.TemporaryDirectory() as folder:
            import textwrap

            done = run_python(textwrap.dedent(self.PROGRAM) + textwrap.dedent(how), folder, timeout=WAIT_S)
            # A later look finds what a killed program left.
            run = stepscope.open(folder, use_cache=False).run
            names = {event.name.split()[-1] for track in run.tracks for event in track.slices}
            return done, names, [xspace.read(file) for file in files(folder)]

    def test_recording_is_written_without_stop_trace(self):
        done, names, _ = self.end("")
        self.assertEqual((done.returncode, "spin" in names), (0, True), done.stderr)

    def test_recording_is_written_after_an_exception(self):
        done, names, _ = self.end("raise LookupError")
        self.assertEqual((done.returncode, "spin" in names), (1, True), done.stderr)

    def test_recording_is_recovered_after_os_exit(self):
        done, names, _ = self.end("os._exit(3)")
        self.assertEqual((done.returncode, "spin" in names), (3, True), done.stderr)

    def test_recording_is_recovered_after_sigkill(self):
        done, names, _ = self.end("os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual((done.returncode, "spin" in names), (-9, True), done.stderr)

    def test_recording_is_written_with_daemon_threads(self):
        done, names, _ = self.end(
            "threading.Thread(target=lambda: spin(1 << 60), daemon=True).start(); spin(6)"
        )
        self.assertEqual((done.returncode, "spin" in names), (0, True), done.stderr)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_forked_children_are_not_sampled(self):
        done, names, _ = self.end(
            """
            for n in range(5):
                pid = os.fork()
                if not pid:
                    # The child is nobody's, and may record itself.
                    assert not stepscope.is_recording()
                    options = stepscope.ProfileOptions(python_sampling_hz=500, session_id=f"child{n}")
                    with stepscope.trace(sys.argv[1] + "/children", options=options):
                        spin(3)
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            os.rename(sys.argv[1] + "/children", sys.argv[1] + "_children")
            import shutil
            shutil.rmtree(sys.argv[1] + "_children")
            spin(6)
            """
        )
        self.assertEqual((done.returncode, "spin" in names), (0, True), done.stderr)


if __name__ == "__main__":
    unittest.main()
