import functools
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


class WrongTimeError(AssertionError):
    """A time is not what was expected: it is, when the machine stood still meanwhile."""


def in_time(holds, *said):
    if not holds:
        raise WrongTimeError(said)


def mostly(test):
    """Up to four attempts where a time was wrong; whatever else is wrong fails at once."""

    @functools.wraps(test)
    def attempts(self):
        for _ in range(3):
            try:
                return test(self)
            except WrongTimeError as error:
                print(f"once more: {error}", file=sys.stderr)
        return test(self)

    return attempts


def busy(seconds):
    """Keeps the interpreter busy, in its own bytecode, for about so long of this thread's time."""
    end = time.thread_time() + seconds
    total = 0
    while time.thread_time() < end:
        for number in range(500):
            total += number * number
    return total


def hot(seconds):
    return busy(seconds)


def cold(seconds):
    return busy(seconds)


def work(rounds=6):
    for _ in range(rounds):
        hot(0.15)
        cold(0.05)


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


def seconds_of(track):
    """How long each function was seen, by its name without the file."""
    total = {}
    for event in track.slices:
        name = event.name.split()[-1]
        total[name] = total.get(name, 0.0) + event.duration_ps / 1e12
    return total


class Shares(unittest.TestCase):
    def assert_shares(self, track, span_s):
        seconds = seconds_of(track)
        together = seconds["hot"] + seconds["cold"]
        in_time(together > 0.7 * span_s, seconds)
        # Three quarters of the time are the hot function's.
        in_time(abs(seconds["hot"] / together - 0.75) < 0.12, seconds)
        in_time(abs(seconds["work"] - together) < 0.15 * together, seconds)

    @mostly
    def test_main_thread_is_sampled(self):
        begun = time.perf_counter()
        run, counts = sampled(work)
        took = time.perf_counter() - begun
        track = run.track("MainThread (sampled)")
        self.assert_shares(track, 0.8 * took)
        self.assertEqual(counts["samples_per_s"], 100.0)
        in_time(counts["taken"] > 40, counts)
        self.assertEqual(track.tid, threading.get_native_id())
        inside = next(event for event in track.slices if event.name.endswith(" hot"))
        self.assertTrue(inside.name.startswith("$test_sampling.py:"))
        self.assertTrue(inside.parent.name.endswith(" work"))

    def test_main_thread_has_a_name_without_the_threading_module(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(
                """
                import sys, time, stepscope
                def spin(seconds):
                    until = time.thread_time() + seconds
                    while time.thread_time() < until: pass
                options = stepscope.ProfileOptions(python_sampling_hz=200)
                with stepscope.trace(sys.argv[1], options=options):
                    spin(0.2)
                    print("threading" in sys.modules)
                    import threading
                    spin(0.2)
                """,
                folder,
            )
            self.assertEqual(done.stdout.strip(), "False", done.stderr)
            run = stepscope.open(folder, use_cache=False).run
        rows = [track.name for track in run.tracks if any("spin" in one.name for one in track.slices)]
        self.assertEqual(rows, ["MainThread (sampled)"])

    @mostly
    def test_other_threads_are_sampled(self):
        def program():
            thread = threading.Thread(target=work, name="worker")
            thread.start()
            thread.join()

        run, _ = sampled(program, hz=200)
        worker = run.track("worker (sampled)")
        self.assert_shares(worker, 1.0)
        main = seconds_of(run.track("MainThread (sampled)"))
        in_time(main["join"] > 0.7 * seconds_of(worker)["work"], main)

    @mostly
    def test_waiting_thread_is_sampled_at_its_wait(self):
        def waiting():
            begin = time.monotonic()
            time.sleep(0.6)
            took.append(time.monotonic() - begin)

        took = []
        run, counts = sampled(waiting)
        seconds = seconds_of(run.track("MainThread (sampled)"))
        in_time(abs(seconds["waiting"] / took[0] - 1) < 0.35, seconds, took)
        in_time(counts["taken"] > 20, counts)

    @mostly
    def test_consecutive_equal_samples_become_one_slice(self):
        run, counts = sampled(work, hz=200)
        track = run.track("MainThread (sampled)")
        works = [event for event in track.slices if event.name.endswith(" work")]
        self.assertEqual(len(works), 1)
        in_time(len(track.slices) < counts["taken"], counts)

    @mostly
    def test_one_thousand_samples_a_second_are_possible(self):
        run, counts = sampled(work, hz=1000)
        self.assert_shares(run.track("MainThread (sampled)"), 1.0)
        in_time(counts["taken"] > 100, counts)


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
        run, counts = sampled(lambda: busy(0.1), hz=0, python_tracer_level=0)
        self.assertEqual((counts, [track for track in run.tracks if "sampled" in track.name]), ({}, []))
        run, counts = sampled(lambda: busy(0.1), host_tracer_level=0)
        self.assertEqual([track for track in run.tracks if "sampled" in track.name], [])

    def test_sampling_and_call_tracing_can_run_together(self):
        run, _ = sampled(lambda: hot(0.3), python_tracer_level=1)
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
        sampled(lambda: busy(0.05), hz=1000)
        self.assertEqual(sys.getswitchinterval(), before)

    def test_consecutive_recordings_are_sampled(self):
        for _ in range(3):
            run, _ = sampled(lambda: hot(0.2))
            self.assertIn("hot", seconds_of(run.track("MainThread (sampled)")))


class Ends(unittest.TestCase):
    """Programs that end in odd ways, while they are sampled."""

    PROGRAM = """
        import os, signal, sys, threading, time, stepscope
        stepscope.start_trace(sys.argv[1], options=stepscope.ProfileOptions(python_sampling_hz=500))
        def spin(seconds):
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                sum(range(100))
        spin(0.4)
    """

    def end(self, how):
        with tempfile.TemporaryDirectory() as folder:
            import textwrap

            done = run_python(textwrap.dedent(self.PROGRAM) + textwrap.dedent(how), folder)
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
            "threading.Thread(target=lambda: spin(1e9), daemon=True).start(); spin(0.1)"
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
                        spin(0.05)
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            os.rename(sys.argv[1] + "/children", sys.argv[1] + "_children")
            import shutil
            shutil.rmtree(sys.argv[1] + "_children")
            spin(0.1)
            """
        )
        self.assertEqual((done.returncode, "spin" in names), (0, True), done.stderr)


if __name__ == "__main__":
    unittest.main()
