"""
Tests of the flight recorder: the last seconds of a program are available on request, and after a kill.

    STEPSCOPE_SERVE=… STEPSCOPE_BIN=… python flight_recorder.py [TEST…]
"""

from __future__ import annotations

import itertools
import sys
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from programs import (
    Program,
    info,
    one_recording,
    our_program,
    recordings,
    run_tests,
    scratch,
    seen_by_jax,
    seen_by_xprof,
    steps_seen_by_jax,
    stepscope,
    wait_for,
)

KEEP_MS = 4_000
# Longer than a test runs, suspended or not: nothing is overwritten.
KEEP_EVERYTHING_MS = 3_600_000
# Difference between the recorder's clock and the Unix clock of the program.
CLOCK_NS = 20_000_000


class CaptureCommand:
    """A finished `stepscope capture`: its file, and the Unix nanoseconds before and after the command."""

    def __init__(self, logdir: Path, port: int, *options: object) -> None:
        self.asked_ns = time.time_ns()
        ended = stepscope("capture", f"localhost:{port}", "--logdir", logdir, *options)
        self.answered_ns = time.time_ns()
        # The program makes no step while it is suspended, and the command reports that.
        is_empty = "the programs recorded nothing" in ended.err
        assert ended.code == int(is_empty), ended
        self.path = one_recording(logdir)
        self.steps = steps_seen_by_jax(self.path, "train")
        assert not (is_empty and self.steps), ended


class FlightRecorder(unittest.TestCase):
    def check_steps(
        self, steps: list[int], program_ns: list[int], certain: tuple[int, int], possible: tuple[int, int]
    ) -> None:
        """
        Check recorded steps against the times at which the program started each of its steps.

        Every step within the times `certain` is recorded, no step outside the times `possible`, and none is
        missing in between. The number of these steps depends on the machine.
        """
        times = list(enumerate(itertools.pairwise(program_ns)))
        first_ns, last_ns = certain[0] + CLOCK_NS, certain[1] - CLOCK_NS
        within = [n for n, (start, end) in times if first_ns < start and end < last_ns]
        self.assertEqual(sorted(set(within) - set(steps)), [], "steps of the time asked for are missing")
        before = [n for n, (_, end) in times if end < possible[0] - CLOCK_NS]
        after = [n for n, (start, _) in times if start > possible[1] + CLOCK_NS]
        self.assertEqual(sorted(set(before + after) & set(steps)), [], "steps of another time are recorded")
        if steps:
            self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "a step is missing")

    def run_program(self, keep_ms: int, captures: Callable[[Path, Program, int], None]) -> list[int]:
        """Run the program during `captures`; return the Unix nanoseconds at which it started each step."""
        with scratch() as folder:
            step_times = folder / "step-times"
            options = ("--keep-last", keep_ms, "--until-eof", "--step-times", step_times)
            with our_program(*options) as (program, port):
                captures(folder, program, port)
                self.assertEqual(program.close_input(), 0, program.text)
            return [int(line.split()[0]) for line in step_times.read_text().splitlines()]

    def test_the_last_seconds_on_demand(self) -> None:
        last_ns = 2_000_000_000
        taken = []

        def captures(folder: Path, program: Program, port: int) -> None:
            for name in ("one", "two"):
                # Steps from before the two seconds exist, and the second request returns later steps.
                program.work_for(2.5)
                taken.append(CaptureCommand(folder / name, port, "--last", "2s"))
            for capture in taken:
                if capture.steps:
                    shown, groups = seen_by_xprof(capture.path)
                    self.assertEqual(shown["forward"], seen_by_jax(capture.path)["forward"])
                    self.assertGreaterEqual(groups, len(capture.steps) - 1)

        program_ns = self.run_program(KEEP_MS, captures)
        for capture in taken:
            asked_ns, answered_ns = capture.asked_ns, capture.answered_ns
            self.check_steps(
                capture.steps,
                program_ns,
                certain=(answered_ns - last_ns, asked_ns),
                possible=(asked_ns - last_ns, answered_ns),
            )

    def test_an_interval_can_be_captured_meanwhile(self) -> None:
        interval_ns = 1_000_000_000
        taken = []

        def captures(folder: Path, program: Program, port: int) -> None:
            program.work(100)
            taken.append(CaptureCommand(folder / "logs", port, "--duration-ms", 1_000))

        program_ns = self.run_program(KEEP_MS, captures)
        (capture,) = taken
        asked_ns, answered_ns = capture.asked_ns, capture.answered_ns
        # Nothing from before the request, although it is retained.
        self.check_steps(
            capture.steps,
            program_ns,
            certain=(answered_ns - interval_ns, asked_ns + interval_ns),
            possible=(asked_ns, answered_ns),
        )

    def test_more_than_is_retained_returns_everything(self) -> None:
        keep_ms = 1_000
        taken = []

        def captures(folder: Path, program: Program, port: int) -> None:
            program.work_for(2)
            taken.append(CaptureCommand(folder / "logs", port, "--last", "60s"))

        program_ns = self.run_program(keep_ms, captures)
        (capture,) = taken
        asked_ns, answered_ns = capture.asked_ns, capture.answered_ns
        self.check_steps(
            capture.steps,
            program_ns,
            certain=(answered_ns - keep_ms * 1_000_000, asked_ns),
            possible=(program_ns[0], answered_ns),
        )

    def test_a_program_without_it_reports_that(self) -> None:
        with scratch() as logdir, our_program() as (_, port):
            ended = stepscope("capture", f"localhost:{port}", "--last", "1s", "--logdir", logdir)
            self.assertEqual(ended.code, 1, ended)
            self.assertRegex(ended.out + ended.err, "keep_last")

    def test_its_memory_is_bounded(self) -> None:
        with our_program("--keep-last", 500, "--extra-spans", 500) as (program, _):

            def stays() -> bool:
                rss_mib = program.rss_mib()
                program.work(200)
                grown_mib = program.rss_mib() - rss_mib
                print(f" ({rss_mib:.0f} MiB, then {grown_mib:+.1f}) ", end="", file=sys.stderr)
                # A recording of everything grows by more in this time.
                return grown_mib < 1

            wait_for("memory that no longer grows", stays)
            # Half a second of this program is far below the limit of memory, which takes longer to reach.
            self.assertLess(program.rss_mib(), 40)

    def test_the_last_seconds_survive_a_kill(self) -> None:
        with scratch() as folder:
            logdir, before = folder / "logs", folder / "before"
            # Slow enough that the memory limit is not reached either.
            options = ("--keep-last", KEEP_EVERYTHING_MS, "--log-dir", logdir, "--pause-ms", 20)
            with our_program(*options) as (program, port):
                attempts = itertools.count()

                def ten_steps() -> CaptureCommand | None:
                    capture = CaptureCommand(before / str(next(attempts)), port, "--last", "3600s")
                    return capture if len(capture.steps) >= 10 else None

                seen = wait_for("ten steps", ten_steps).steps
                program.process.kill()
                program.process.wait()
                # A step of twice the median has been saved meanwhile, if there was one.
                saved = set(recordings(logdir))
                recovered = stepscope("recover", logdir)
                self.assertEqual(recovered.code, 0, recovered)
                (path,) = set(recordings(logdir)) - saved
            steps = steps_seen_by_jax(path, "train")
            self.assertEqual(steps, list(range(len(steps))), "a step is missing")
            # Everything that a client has seen of the program, at least.
            self.assertGreaterEqual(steps[-1], seen[-1])
            # The kill may have come before the last step's.
            self.assertIn(seen_by_jax(path)["forward"], (len(steps) - 1, len(steps)))
            info(path)


if __name__ == "__main__":
    run_tests()
