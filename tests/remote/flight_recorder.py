"""
Tests of the flight recorder: the last seconds of a program are available on request, and after a kill.

    STEPSCOPE_SERVE=… STEPSCOPE_BIN=… python flight_recorder.py [TEST…]
"""

from __future__ import annotations

import sys
import time
import unittest
from pathlib import Path

from programs import (
    in_time,
    info,
    mostly,
    one_recording,
    our_program,
    recordings,
    run_tests,
    scratch,
    seen_by_jax,
    seen_by_xprof,
    steps_seen_by_jax,
    stepscope,
)

KEEP_MS = 4_000


class FlightRecorder(unittest.TestCase):
    def check_unbroken(self, path: Path) -> list[int]:
        steps = steps_seen_by_jax(path, "train")
        in_time(len(steps) >= 2, path)
        self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "a step is missing")
        return steps

    @mostly
    def test_the_last_seconds_on_demand(self) -> None:
        with scratch() as logdir, our_program("--keep-last", KEEP_MS) as (program, port):
            time.sleep(3)
            asked = time.time_ns()
            ended = stepscope("capture", f"localhost:{port}", "--last", "2s", "--logdir", logdir, "--session", "one")
            self.assertEqual(ended.code, 0, ended)
            path = one_recording(logdir)
            steps = self.check_unbroken(path)
            run = info(logdir)["runs"][0]
            # Not everything that is retained.
            in_time(1.5e9 < run["duration_ns"] < 3.5e9, run)
            # It covers the past: it starts two seconds before the request, and ends with it.
            in_time(asked - 3.5e9 < run["start_unix_ns"] < asked - 1.5e9, run)
            shown, groups = seen_by_xprof(path)
            self.assertEqual(shown["forward"], seen_by_jax(path)["forward"])
            self.assertGreaterEqual(groups, len(steps) - 1)
            # It continues: the next request returns later steps of an equal duration.
            time.sleep(2.5)
            again = stepscope("capture", f"localhost:{port}", "--last", "2s", "--logdir", logdir, "--session", "two")
            self.assertEqual(again.code, 0, again)
            later = self.check_unbroken(recordings(logdir)[1])
            self.assertGreater(later[0], steps[-1])
            self.assertTrue(program.alive())

    @mostly
    def test_an_interval_can_be_captured_meanwhile(self) -> None:
        with scratch() as logdir, our_program("--keep-last", KEEP_MS) as (program, port):
            program.work(300)
            asked = time.time_ns()
            ended = stepscope("capture", f"localhost:{port}", "--duration-ms", 1_000, "--logdir", logdir)
            self.assertEqual(ended.code, 0, ended)
            self.check_unbroken(one_recording(logdir))
            # Not everything that is retained; a step may have started before, and be long.
            run = info(logdir)["runs"][0]
            in_time(run["start_unix_ns"] > asked - 2e9, run)

    @mostly
    def test_more_than_is_retained_returns_everything(self) -> None:
        with scratch() as logdir, our_program("--keep-last", 1_000) as (_, port):
            time.sleep(2)
            ended = stepscope("capture", f"localhost:{port}", "--last", "60s", "--logdir", logdir)
            self.assertEqual(ended.code, 0, ended)
            self.check_unbroken(one_recording(logdir))
            run = info(logdir)["runs"][0]
            in_time(0.8e9 < run["duration_ns"] < 3e9, run)

    def test_a_program_without_it_reports_that(self) -> None:
        with scratch() as logdir, our_program() as (_, port):
            ended = stepscope("capture", f"localhost:{port}", "--last", "1s", "--logdir", logdir)
            self.assertEqual(ended.code, 1, ended)
            self.assertRegex(ended.out + ended.err, "keep_last")

    def test_its_memory_is_bounded(self) -> None:
        with our_program("--keep-last", 500, "--extra-spans", 500) as (program, _):
            time.sleep(2)
            rss_mib = program.rss_mib()
            time.sleep(4)
            grown_mib = program.rss_mib() - rss_mib
            print(f" ({rss_mib:.0f} MiB, then {grown_mib:+.1f}) ", end="", file=sys.stderr)
            self.assertLess(grown_mib, 32)

    @mostly
    def test_the_last_seconds_survive_a_kill(self) -> None:
        with scratch() as logdir, our_program("--keep-last", KEEP_MS, "--log-dir", logdir) as (program, _):
            time.sleep(3)
            program.process.kill()
            killed = time.time_ns()
            program.process.wait()
            # On a busy machine, a step of twice the median has been saved meanwhile.
            saved = set(recordings(logdir))
            recovered = stepscope("recover", logdir)
            self.assertEqual(recovered.code, 0, recovered)
            (path,) = set(recordings(logdir)) - saved
            self.check_unbroken(path)
            run = info(path)["runs"][0]
            in_time(run["duration_ns"] > 1.5e9, run)
            ended = run["start_unix_ns"] + run["duration_ns"]
            # Everything except the last instant.
            in_time(ended > killed - 2e9, run)
            self.assertGreaterEqual(seen_by_jax(path)["forward"], 2)


if __name__ == "__main__":
    run_tests()
