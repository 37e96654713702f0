"""The flight recorder."""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path

import xspace
from recorded import files, run_python

import stepscope
from stepscope import _core, neuron


def sampled(found):
    """Slices of the sampler."""
    return [event for event in found.events if event.line.endswith("(sampled)")]


def busy(seconds):
    """Run Python code for so long of this thread's time, which does not pass while others run."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1_000))


class Flight(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(self.stop)

    def stop(self):
        with contextlib.suppress(stepscope.NoSessionError):
            stepscope.stop_flight()

    def save_samples(self):
        """Run Python code and save it until the sampler has seen some of it."""
        until = time.monotonic() + 60
        while True:
            begun = time.monotonic()
            busy(0.05)
            found = xspace.read(stepscope.save_last(time.monotonic() - begun).path)
            if sampled(found):
                return
            self.assertLess(time.monotonic(), until, "nothing was sampled")

    def test_save_last_writes_the_last_seconds_and_continues(self):
        stepscope.start_flight(self.folder, keep_last_s=120)
        for n in range(3):
            with stepscope.StepTrace("train", step_num=n), stepscope.Trace("forward", rows=n):
                pass
        saved = stepscope.save_last()
        self.assertEqual((saved.spans, saved.dropped), (6, 0))
        found = xspace.read(saved.path)
        self.assertEqual([event.stats["step_num"] for event in found.named("train")], [0, 1, 2])
        time.sleep(1.2)
        begun = time.monotonic()
        with stepscope.Trace("late"):
            pass
        # From there and up to a second before. A save that the machine stopped for a second covers less.
        saves = [saved]

        def is_covered():
            covered = time.monotonic() - begun + 1
            saves.append(stepscope.save_last(covered))
            return time.monotonic() - begun <= covered

        self.wait_until("a save takes less than a second", is_covered)
        self.assertNotEqual(saves[-1].path, saved.path)
        found = xspace.read(saves[-1].path)
        self.assertEqual(len(found.named("late")), 1)
        self.assertEqual(found.named("train"), [])
        status = stepscope.flight_status()
        self.assertEqual((status.saves, status.paused), (len(saves), False))
        self.assertGreater(status.covered_s, 1.2)
        stepscope.stop_flight()
        self.assertIsNone(stepscope.flight_status())

    def test_flight_recorder_in_memory_writes_to_any_file(self):
        stepscope.start_flight()
        with stepscope.Trace("kept"):
            pass
        out = io.BytesIO()
        report = stepscope.write_last(out)
        self.assertIsNone(report.path)
        self.assertEqual(report.size_bytes, len(out.getvalue()))
        path = self.folder / "last.xplane.pb"
        path.write_bytes(out.getvalue())
        self.assertEqual(len(xspace.read(path).named("kept")), 1)
        with self.assertRaisesRegex(ValueError, "write_last"):
            stepscope.save_last()

    def test_start_trace_pauses_the_flight_recorder(self):
        stepscope.start_flight(self.folder / "flight")
        options = stepscope.ProfileOptions(python_tracer_level=0)
        with stepscope.trace(self.folder / "own", options=options, sources=[]) as recording:
            with stepscope.Trace("inside"):
                pass
            self.assertTrue(stepscope.flight_status().paused)
            with self.assertRaisesRegex(RuntimeError, "pauses"):
                stepscope.save_last()
        self.assertEqual(recording.report.spans, 1)
        self.assertFalse(stepscope.flight_status().paused)
        with stepscope.Trace("after"):
            pass
        found = xspace.read(stepscope.save_last().path)
        self.assertEqual((len(found.named("inside")), len(found.named("after"))), (0, 1))

    def test_sampling_continues_after_a_pause(self):
        options = stepscope.ProfileOptions(python_tracer_level=0)
        stepscope.start_flight(self.folder, python_sampling_hz=500)
        self.save_samples()
        with stepscope.trace(self.folder / "own", options=options, sources=[]) as recording:
            self.assertIsNone(_core.sampling_counts())
            busy(0.05)
        self.save_samples()
        self.assertEqual(sampled(xspace.read(recording.report.path)), [])

    def test_calls_are_traced_on_request(self):
        stepscope.start_flight(self.folder, python_tracer_level=1)
        busy(0.01)
        saved = xspace.read(stepscope.save_last().path)
        self.assertTrue([name for name in saved.names() if name.endswith(" busy")])
        stepscope.stop_flight()
        # It is off again.
        self.assertIsNone(sys.getprofile())
        self.assertIsNone(_core.start_calls(""))
        _core.stop_calls()

    def test_capture_is_taken_from_the_flight_recorder(self):
        stepscope.start_flight(self.folder / "flight", python_sampling_hz=500)
        server = stepscope.start_server(0)
        self.addCleanup(stepscope.stop_server)
        done = threading.Event()

        def work():
            while not done.is_set():
                busy(0.01)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            report = stepscope.capture(f"localhost:{server.port}", self.folder, duration_ms=200)
        finally:
            done.set()
            thread.join()
        self.assertTrue(report.hosts[0].path.exists())
        # It has taken nothing with it.
        self.save_samples()

    def test_neuron_profile_contains_its_first_work_during_a_recording(self):
        stepscope.start_flight(self.folder / "flight")
        # The working files are kept, beside where the program was started.
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(self.folder)
        for number in range(3):
            with warnings.catch_warnings():
                # There is no Neuron device.
                warnings.simplefilter("ignore", stepscope.StepscopeWarning)
                with neuron.profile(0, 20_000, self.folder / "plugin", "trace") as profiling:
                    with stepscope.Trace("first"):
                        pass
            (file,) = profiling.report.files
            named = [row["name"] for row in json.loads(file.read_bytes())["traceEvents"]]
            self.assertEqual(named.count("first"), 1, f"{number}: {profiling.report}")

    def test_slow_step_and_signal_save(self):
        stepscope.start_flight(
            self.folder,
            save_on_signal=signal.SIGUSR2,
            # The first step that can be slow is the eleventh.
            slow_step=stepscope.SlowStep(times_median=20, after_steps=10, last_s=1),
        )
        durations = []
        for n in range(10):
            begun = time.monotonic()
            # Of microseconds, so that a multiple of the median is short on a busy machine, too.
            with stepscope.StepTrace("train", step_num=n):
                pass
            durations.append(time.monotonic() - begun)
        with stepscope.StepTrace("train", step_num=10):
            # Slow, however long a busy machine made the others.
            time.sleep(max(0.02, 25 * sorted(durations)[5]))
        self.wait_for(1)
        os.kill(os.getpid(), signal.SIGUSR2)
        self.wait_for(2)
        because = [xspace.read(path).stats["saved_because"] for path in files(self.folder)]
        self.assertRegex(because[0], "step 10 .*median")
        self.assertIn("signal", because[1])

    def wait_for(self, saves):
        self.wait_until("something is saved", lambda: stepscope.flight_status().saves >= saves)

    def wait_until(self, what, holds):
        until = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)

    def test_short_coverage_is_a_warning(self):
        stepscope.start_flight(self.folder, keep_last_s=3600, max_bytes=1 << 20)
        for n in range(200_000):
            with stepscope.Trace("x", n=n):
                pass
        self.wait_until("enough is drained", lambda: stepscope.flight_status().size_bytes >= 1 << 18)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = stepscope.save_last()
        self.assertIn("raise max_bytes", str([str(one.message) for one in caught]))
        self.assertLess(report.spans, 200_000)

    def test_invalid_options_are_refused(self):
        for options, error in (
            ({"keep_last_s": 0}, "keep_last_s: it must be more than 0"),
            ({"keep_last_s": "30"}, "keep_last_s: it must be float, not str"),
            ({"keep_last_s": float("nan")}, "keep_last_s"),
            ({"max_bytes": 1000}, "max_bytes: it must be 1048576 or more, not 1000"),
            ({"max_bytes": 1e9}, "max_bytes: it must be int, not float"),
            ({"save_on_signal": signal.SIGUSR2}, "need a log_dir"),
            ({"save_on_signal": 9999}, "save_on_signal: it must be 1 to"),
            ({"slow_step": 2.0}, "SlowStep, not float"),
            ({"slow_step": stepscope.SlowStep()}, "need a log_dir"),
            ({"host_tracer_level": 0}, "Off"),
            ({"host_tracer_level": 9}, "host_tracer_level: it must be 0 to 3"),
            ({"buffer_bytes": 1}, "buffer_bytes"),
        ):
            with self.subTest(options=options):
                with self.assertRaisesRegex((TypeError, ValueError), error) as raised:
                    stepscope.start_flight(**options)
                self.assertIsInstance(raised.exception, stepscope.StepscopeError)
                self.assertIsNone(stepscope.flight_status())
        with self.assertRaisesRegex(ValueError, "times_median: it must be 1 or more, not 0.5"):
            stepscope.SlowStep(times_median=0.5)
        for verb in (stepscope.stop_flight, stepscope.save_last, lambda: stepscope.write_last(io.BytesIO())):
            with self.assertRaisesRegex(stepscope.NoSessionError, "start_flight"):
                verb()
        stepscope.start_flight()
        with self.assertRaisesRegex(stepscope.SessionActiveError, "stop_flight"):
            stepscope.start_flight()
        with self.assertRaisesRegex(ValueError, "last_s: it must be more than 0"):
            stepscope.save_last(0)

    def test_flight_recording_survives_every_ending(self):
        program = """
            import os, signal, sys, time
            import stepscope
            stepscope.start_flight(sys.argv[1], python_sampling_hz=200)
            with stepscope.Trace("work"):
                time.sleep(0.05)
            if sys.argv[2] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if sys.argv[2] == "fork":
                child = os.fork()
                if not child:
                    assert stepscope.flight_status() is None
                    stepscope.start_flight(sys.argv[1] + "/child", python_sampling_hz=200)
                    with stepscope.Trace("in the child"):
                        pass
                    assert stepscope.save_last().spans >= 1
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                assert not stepscope.flight_status().paused
            """
        for end, status, left in (("well", 0, 0), ("kill", -9, 1), ("fork", 0, 0)):
            with self.subTest(end=end):
                folder = self.folder / end
                done = run_python(program, folder, end)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(done.stderr, "")
                if left:
                    # Opening the directory makes a run of what is left.
                    self.assertEqual(len(stepscope.open(folder)), 1)
                    (path,) = files(folder)
                    self.assertEqual(len(xspace.read(path).named("work")), 1)
                else:
                    self.assertEqual(files(folder), [])


if __name__ == "__main__":
    unittest.main()
