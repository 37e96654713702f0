"""
Tests of captures by stock clients from our program: JAX's `collect_profile`, and XProf's *Capture profile* button.

    STEPSCOPE_SERVE=… STEPSCOPE_BIN=… python captured_by_clients.py [TEST…]

Every file that a client writes must open in JAX's `ProfileData` and XProf's converters, with our spans and
steps in it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from programs import (
    INTERVAL_MS,
    Program,
    at_one_time,
    free_port,
    info,
    one_recording,
    our_program,
    recordings,
    run,
    run_tests,
    scratch,
    seen_by_jax,
    seen_by_xprof,
    steps_seen_by_jax,
    stepscope,
    wait_for,
)
from xprof.api import continuous_profiling_snapshot as continuous

SPANS = ["data_prep", "forward", "loss_backward", "optimizer_step", "matmul_block"]


def collect_profile(port: int, milliseconds: int, logdir: Path, *options: object) -> object:
    return run(
        *(sys.executable, "-m", "jax.collect_profile", port, milliseconds),
        *("--log_dir", logdir, "--no_perfetto_link", *options),
    )


@contextlib.contextmanager
def xprof(logdir: Path) -> Iterator[str]:
    """A running XProf, and its address."""
    port, workers = free_port(), free_port()
    command = [sys.executable, "-m", "xprof.server", "--logdir", logdir, "--port", port, "--grpc_port", workers]
    with Program(command) as program:
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert program.alive(), program.text
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
                return True
            return False

        wait_for("XProf", answers)
        yield address


def press_capture(address: str, **arguments: object) -> str:
    """Send the request of XProf's capture button; return the response's text."""
    question = urllib.parse.urlencode({"num_retry": 0, "worker_list": "", **arguments})
    url = f"{address}/data/plugin/profile/capture_profile?{question}"
    try:
        # Writing a file waits for the disk (fsync), which took over a minute on a virtual disk.
        with urllib.request.urlopen(url, timeout=600) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    if body[:2] == b"\x1f\x8b":
        body = gzip.decompress(body)
    said = json.loads(body)
    return said.get("result") or said["error"]


class CapturedByClients(unittest.TestCase):
    def check_file(self, path: Path) -> None:
        events = seen_by_jax(path)
        steps = steps_seen_by_jax(path, "train")
        self.assertGreaterEqual(len(steps), 2, events)
        for span in SPANS:
            self.assertGreaterEqual(events[span], len(steps) - 1, (span, events))
        self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "a step is missing")
        shown, groups = seen_by_xprof(path)
        for span in SPANS:
            self.assertEqual(shown[span], events[span], f"XProf shows all of {span}")
        self.assertGreaterEqual(groups, len(steps) - 1, "XProf groups by step")

    def test_collect_profile(self) -> None:
        with scratch() as logdir, our_program() as (program, port):
            ended = collect_profile(port, INTERVAL_MS, logdir)
            self.assertEqual(ended.code, 0, ended)
            path = one_recording(logdir)
            self.check_file(path)
            # The file that `collect_profile` derives for Perfetto.
            made = json.loads(gzip.decompress((path.parent / "remote.trace.json.gz").read_bytes()))
            self.assertTrue(any(event.get("name") == "forward" for event in made["traceEvents"]))
            run_facts = info(logdir)["runs"][0]
            self.assertGreaterEqual(run_facts["steps"], 2)
            # A guard against a capture that does not end: a busy machine ends it late.
            self.assertLess(run_facts["duration_ns"], 1e6 * (INTERVAL_MS + 60_000))
            self.assertTrue(program.alive())

    def test_collect_profile_with_host_level_1_and_nonsense_options(self) -> None:
        with scratch() as logdir, our_program() as (_, port):
            ended = collect_profile(port, INTERVAL_MS, logdir, "--host_tracer_level", 1)
            self.assertEqual(ended.code, 0, ended)
            self.assertGreaterEqual(seen_by_jax(one_recording(logdir))["forward"], 2)
        with scratch() as logdir, our_program() as (program, port):
            ended = collect_profile(port, INTERVAL_MS, logdir, "--tpu_trace_mod", "TRACE_ONLY_HOST")
            self.assertNotEqual(ended.code, 0, ended)
            self.assertEqual(recordings(logdir), [])
            said = ended.out + ended.err
            self.assertIn("tpu_trace_mod", said)
            self.assertIn("tpu_trace_mode", said, "the nearest known option is named")
            self.assertTrue(program.alive())

    def test_answers_beyond_the_default_limit_of_grpc_of_4_mib(self) -> None:
        with scratch() as logdir, our_program("--extra-spans", 100_000, "--pause-ms", 20) as (program, port):
            ended = collect_profile(port, INTERVAL_MS, logdir)
            self.assertEqual(ended.code, 0, ended)
            self.assertGreater(one_recording(logdir).stat().st_size, 4 << 20)
            ended = stepscope("capture", port, INTERVAL_MS, "--logdir", logdir, "--session", "ours")
            self.assertEqual(ended.code, 0, ended)
            self.assertEqual(len(recordings(logdir)), 2)
            for captured in info(logdir)["runs"]:
                self.assertGreater(captured["slices"], 200_000)
            self.assertTrue(program.alive())

    def test_xprof_s_button(self) -> None:
        with scratch() as logdir, our_program() as (program, port), xprof(logdir) as address:
            said = press_capture(address, service_addr=f"localhost:{port}", duration=INTERVAL_MS)
            self.assertIn("successfully", said)
            self.check_file(one_recording(logdir))
            self.assertTrue(program.alive())

    def test_xprof_s_button_with_a_delay_and_two_hosts(self) -> None:
        with scratch() as logdir, our_program() as (_, one), our_program() as (_, two), xprof(logdir) as address:
            said = press_capture(
                address, service_addr=f"localhost:{one},localhost:{two}", duration=INTERVAL_MS, delay=300
            )
            self.assertIn("successfully", said)
            self.assertEqual(len(recordings(logdir)), 2)
            for path in recordings(logdir):
                self.check_file(path)
            runs = info(logdir)["runs"]
            self.assertEqual((len(runs), len(runs[0]["hosts"])), (1, 2), runs)
            self.assertTrue(at_one_time(recordings(logdir)), "one interval, not one after the other")

    def test_xprof_s_button_with_a_worker_list(self) -> None:
        # The first address receives the request to capture the workers: `ProfileAnalysis.NewSession`.
        with (
            scratch() as logdir,
            our_program("--allow", logdir) as (_, one),
            our_program() as (_, two),
            xprof(logdir) as address,
        ):
            said = press_capture(
                address,
                service_addr=f"localhost:{one}",
                worker_list=f"localhost:{one},localhost:{two}",
                duration=INTERVAL_MS,
            )
            self.assertIn("successfully", said)
            self.assertEqual(len(recordings(logdir)), 2, sorted(logdir.rglob("*")))
            for path in recordings(logdir):
                self.check_file(path)
            runs = info(logdir)["runs"]
            self.assertEqual((len(runs), len(runs[0]["hosts"])), (1, 2), runs)

    def test_xprof_s_continuous_profiling(self) -> None:
        with scratch() as logdir, our_program() as (program, port):
            address = f"localhost:{port}"
            continuous.start_continuous_profiling(address, {"host_tracer_level": 2})
            program.work(50)
            continuous.get_snapshot(address, str(logdir))
            self.assertTrue(recordings(logdir) or list(logdir.rglob("*.xplane.pb")), sorted(logdir.rglob("*")))
            self.check_file(sorted(logdir.rglob("*.xplane.pb"))[0])
            continuous.stop_continuous_profiling(address)
            # An ordinary capture works again afterwards.
            ended = collect_profile(port, INTERVAL_MS, logdir)
            self.assertEqual(ended.code, 0, ended)


if __name__ == "__main__":
    run_tests()
