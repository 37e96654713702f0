import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import xspace
from recorded import files, run_python

import stepscope
from stepscope import _core
from stepscope.recording import _captures

# Duration of a capture that the test ends.
LONG_MS = 600_000


class Remote(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def busy(self):
        """Work on another thread until the test ends; what is returned waits until some more is done."""
        done = threading.Event()
        rounds = threading.Semaphore(0)
        self.recorded = 0

        def beat():
            return len("x")

        def work():
            while not done.is_set():
                with stepscope.Trace("busy", n=1):
                    beat()
                self.recorded = self.recorded + 1 if stepscope.is_recording() else 0
                rounds.release()
                done.wait(0.001)

        thread = threading.Thread(target=work, name="worker")
        thread.start()

        def end():
            done.set()
            thread.join()

        self.addCleanup(end)

        def some_more():
            while rounds.acquire(blocking=False):
                pass
            # The first may have begun before.
            self.assertTrue(rounds.acquire(timeout=60) and rounds.acquire(timeout=60))

        return some_more

    def is_recorded(self):
        return self.recorded > 100

    def is_sampled(self):
        counts = _core.sampling_counts()
        return counts is not None and counts[0] > 20 and self.is_recorded()

    def capture(self, address, end_when=None, **more):
        """Capture until the working thread has recorded enough: a time may pass without its work."""
        self.recorded = 0
        return stepscope.capture(
            address, self.folder, duration_ms=LONG_MS, end_when=end_when or self.is_recorded, **more
        )

    def collect_profile(self, port, *options, end_when=None):
        """Run `collect_profile`, and press Ctrl-C when the working thread has recorded enough."""
        self.recorded = 0
        command = [sys.executable, "-m", "stepscope.collect_profile", str(port), str(LONG_MS)]
        program = subprocess.Popen(
            [*command, "--log_dir", str(self.folder), "--no_perfetto_link", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with program:
            try:
                is_enough, until = end_when or self.is_recorded, time.monotonic() + 60
                while not is_enough() and program.poll() is None and time.monotonic() < until:
                    time.sleep(0.01)
                program.send_signal(signal.SIGINT)
                _, errors = program.communicate(timeout=60)
            finally:
                program.kill()
        self.assertEqual(program.returncode, 0, errors)

    def test_capture_of_this_process_contains_its_calls(self):
        self.busy()
        with stepscope.start_server(0) as server:
            address = f"{server.host}:{server.port}"
            report = self.capture(address)
            self.assertFalse(stepscope.is_recording())
            quiet = self.capture(
                [address],
                options=stepscope.ProfileOptions(python_tracer_level=0, session_id="quiet"),
            )
        found = xspace.read(report.hosts[0].path)
        self.assertEqual(found.stats["kind.Python"], 1)
        self.assertEqual(found.named("busy")[0].line, "worker")
        self.assertTrue(any(name.endswith(" beat") for name in found.names()), found.names())
        self.assertTrue(found.named("$builtins len"))
        self.assertEqual(report.hosts[0].events, len(found.events))
        without = xspace.read(quiet.hosts[0].path)
        self.assertEqual(without.names(), {"busy"})
        self.assertEqual(quiet.session, "quiet")
        self.assertIsNone(sys.getprofile())

    def test_capture_of_calls_only_has_no_labels(self):
        some_more = self.busy()
        with stepscope.start_server(0) as server:
            address = f"{server.host}:{server.port}"

            def captured(**options):
                options = stepscope.ProfileOptions(**options)
                report = self.capture(address, options=options)
                return xspace.read(report.hosts[0].path).names()

            calls = captured(host_tracer_level=0, python_tracer_level=1)
            labels = captured(host_tracer_level=2, python_tracer_level=0)
        self.assertTrue(any(name.endswith(" beat") for name in calls), calls)
        self.assertEqual([name for name in calls if not name.startswith("$")], [])
        self.assertEqual(labels, {"busy"})
        # Whatever the program records itself has its labels again.
        with stepscope.trace(
            self.folder, options=stepscope.ProfileOptions(python_tracer_level=0)
        ) as recording:
            some_more()
        self.assertEqual(xspace.read(recording.report.path).names(), {"busy"})

    def test_refused_capture_of_calls_only_changes_nothing(self):
        some_more = self.busy()
        alone = stepscope.ProfileOptions(host_tracer_level=0, python_tracer_level=1)
        with stepscope.start_server(0) as server:
            with stepscope.trace(
                self.folder, options=stepscope.ProfileOptions(python_tracer_level=0)
            ) as recording:
                with self.assertRaises(stepscope.CaptureError):
                    stepscope.capture(f"{server.host}:{server.port}", self.folder, options=alone)
                some_more()
        self.assertEqual(xspace.read(recording.report.path).names(), {"busy"})

    def test_capture_contains_samples_on_request(self):
        def spin(seconds):
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                # Work that makes no calls: a traced one would fill the file.
                for _ in range(10_000):
                    pass

        done = threading.Event()

        def work():
            while not done.is_set():
                spin(0.01)
                self.recorded = self.recorded + 1 if stepscope.is_recording() else 0

        self.recorded = 0
        thread = threading.Thread(target=work, name="worker")
        thread.start()

        def end():
            done.set()
            thread.join()

        self.addCleanup(end)
        with stepscope.start_server(0) as server:
            address = f"{server.host}:{server.port}"

            def captured(**options):
                options = stepscope.ProfileOptions(**options)
                report = self.capture(address, self.is_sampled, options=options)
                return xspace.read(report.hosts[0].path)

            sampled = captured(python_sampling_hz=200)
            advanced = captured(advanced_configuration={"python_sampling_hz": 200})
            both = captured(python_sampling_hz=200, python_tracer_level=1)
        for found in (sampled, advanced, both):
            lines = {event.line for event in found.events if event.name.endswith(" spin")}
            self.assertIn("worker (sampled)", lines)
            self.assertEqual("worker" in lines, found is both)
            told = found.named("sampling")[0]
            self.assertGreater(told.stats["taken"], 3)
            self.assertEqual(told.stats["samples_per_s"], 200)
        self.assertIsNone(sys.getprofile())
        with self.assertRaisesRegex(ValueError, "0 to 10000"):
            stepscope.ProfileOptions(advanced_configuration={"python_sampling_hz": 10_001})

    def test_options_of_a_capture_reach_the_sources(self):
        given = {
            "gpu_max_callback_api_events": 7,
            "tpu_power_trace_level": "POWER_TRACE_NORMAL",
            "tpu_sc_dma": True,
            "tpu_trace_mode": "TRACE_COMPUTE",
            "tpu_watched_sync_flag_mask": "1,2",
        }
        with (
            mock.patch.object(_captures.Group, "start") as start,
            stepscope.start_server(0) as server,
        ):
            options = stepscope.ProfileOptions(device_tracer_level=0, advanced_configuration=given)
            address = f"{server.host}:{server.port}"
            stepscope.capture(
                address, self.folder, duration_ms=LONG_MS, options=options, end_when=lambda: start.called
            )
        (asked,) = start.call_args.args
        self.assertEqual(dict(asked.advanced_configuration), given)
        self.assertEqual(asked.device_tracer_level, 0)
        self.assertTrue(asked.enable_hlo_proto)

    def test_second_server_is_refused(self):
        with stepscope.start_server(0) as server:
            with self.assertRaisesRegex(
                ValueError, "Only one profiler server can be active at a time."
            ) as caught:
                stepscope.start_server(0)
            self.assertIsInstance(caught.exception, RuntimeError)
            self.assertGreater(server.port, 0)
        with self.assertRaisesRegex(ValueError, "No active profiler server."):
            stepscope.stop_server()

    def test_invalid_ports_are_errors(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken, self.assertRaisesRegex(RuntimeError, "in use"):
            stepscope.start_server(taken.getsockname()[1])
        with self.assertRaisesRegex(RuntimeError, "99999999"):
            stepscope.start_server(99999999)
        with self.assertRaisesRegex(ValueError, "IP address"):
            stepscope.start_server(0, host="nowhere")

    def test_start_trace_is_refused_during_a_capture(self):
        some_more = self.busy()
        with stepscope.start_server(0) as server:
            address = f"127.0.0.1:{server.port}"
            with stepscope.trace(self.folder / "own"):
                some_more()
                with self.assertRaisesRegex(stepscope.CaptureError, "busy"):
                    stepscope.capture(address, self.folder, duration_ms=50)
            # The refused capture has not ended the tracing of calls.
        own = xspace.read(files(self.folder / "own")[0])
        self.assertTrue(own.named("busy"))

    def test_capture_without_a_server_fails_fast(self):
        with self.assertRaisesRegex(stepscope.CaptureError, "refused"):
            stepscope.capture("127.0.0.1:1", self.folder, duration_ms=50)
        with self.assertRaises(ValueError):
            stepscope.capture("", self.folder)
        self.assertEqual(files(self.folder), [])

    def test_collect_profile_captures_another_process(self):
        self.busy()
        with stepscope.start_server(0) as server:
            self.collect_profile(server.port)
        self.assertTrue(xspace.read(files(self.folder)[0]).named("busy"))

    def test_collect_profile_accepts_the_profiler_options_of_jax(self):
        from stepscope.collect_profile import arguments

        self.assertEqual(
            arguments(["9012", "200", "--log_dir", "logs", "--host", "h", "--no_perfetto_link"]),
            ["9012", "200", "--log_dir", "logs", "--host", "h", "--no_perfetto_link"],
        )
        self.assertEqual(
            arguments(["9012", "--tpu_trace_mode", "TRACE_COMPUTE", "--gpu_enable_nvtx_tracking=true"]),
            [
                *("9012", "--option", "tpu_trace_mode=TRACE_COMPUTE"),
                *("--option", "gpu_enable_nvtx_tracking=true", "--perfetto"),
            ],
        )
        self.assertEqual(arguments(["9012", "--no-perfetto-link"]), ["9012", "--no-perfetto-link"])
        with self.assertRaisesRegex(AttributeError, "did you mean 'python_tracer_level'"):
            arguments(["9012", "200", "--python_tracer_leve", "0"])
        self.busy()
        with stepscope.start_server(0) as server:
            asked = ["--python_tracer_level", "0", "--python_sampling_hz", "500"]
            self.collect_profile(server.port, *asked, end_when=self.is_sampled)
        lines = {event.line for event in xspace.read(files(self.folder)[0]).events}
        self.assertTrue([line for line in lines if line.endswith("(sampled)")], lines)

    def test_help_of_collect_profile_lists_every_option(self):
        from stepscope._options import AdvancedConfiguration

        done = subprocess.run(
            [sys.executable, "-m", "stepscope.collect_profile", "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for name in (*AdvancedConfiguration.KEYS, "log_dir", "no_perfetto_link", "python_sampling_hz"):
            self.assertIn(f"--{name}", done.stdout.split())

    def test_collect_profile_prints_a_link(self):
        self.busy()
        with stepscope.start_server(0) as server:
            program = subprocess.Popen(
                [
                    *(sys.executable, "-m", "stepscope.collect_profile", str(server.port), "200"),
                    *("--log_dir", str(self.folder), "--perfetto-timeout", "1ms"),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            said, _ = program.communicate(timeout=60)
        self.assertTrue(
            "ui.perfetto.dev" in said or "port 9001" in said,
            said,
        )

    def test_program_exits_while_its_server_runs(self):
        done = run_python("import stepscope; stepscope.start_server(0)")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
