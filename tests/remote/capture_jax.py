"""
Tests of `stepscope capture` with JAX's profiler server.

    STEPSCOPE_BIN=… python capture_jax.py [TEST…]
"""

from __future__ import annotations

import json
import re
import signal
import time
import unittest

import wire
from programs import (
    FOR_EVER_MS,
    WAIT_S,
    Program,
    at_one_time,
    capture_until_recorded,
    free_port,
    info,
    jax_program,
    one_recording,
    recordings,
    run_tests,
    scratch,
    seen_by_jax,
    steps_seen_by_jax,
    stepscope,
    stepscope_binary,
)


class CaptureJax(unittest.TestCase):
    def test_an_interval_holds_annotations_steps_and_python_calls(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            address = f"localhost:{port}"
            ended = capture_until_recorded(
                [program],
                *(address, "--duration-ms", FOR_EVER_MS, "--logdir", logdir),
                *("--session", "first", "--json"),
            )
            self.assertEqual(ended.code, 0, ended)
            path = logdir / "plugins/profile/first" / f"localhost_{port}.xplane.pb"
            self.assertEqual(recordings(logdir), [path])
            events = seen_by_jax(path)
            self.assertGreater(events["load_batch"], 10, events)
            steps = steps_seen_by_jax(path, "train")
            self.assertGreater(len(steps), 10, steps)
            self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "a step is missing")
            python = [name for name in events if re.search(r"jax_program\.py:\d+ next_batch", name)]
            self.assertTrue(python, events.most_common(40))
            # The command's output matches the file.
            told = json.loads(ended.out)["hosts"][0]
            self.assertEqual(told["path"], str(path))
            self.assertEqual(told["bytes"], path.stat().st_size)
            self.assertEqual(told["events"], events.total())
            said = info(logdir)
            self.assertEqual([one["name"] for one in said["runs"]], ["first"], said)
            self.assertEqual(said["runs"][0]["steps"], len(steps))
            self.assertEqual(said["runs"][0]["hosts"], [f"localhost_{port}"])
            self.assertTrue(program.alive())
            self.assertEqual(program.terminate(), 0, program.text)

    def test_two_processes_are_two_hosts_of_one_run(self) -> None:
        with scratch() as logdir, jax_program() as (first, one), jax_program() as (second, two):
            begin = time.time_ns()
            ended = capture_until_recorded(
                [first, second],
                f"localhost:{one},localhost:{two}",
                *("--duration-ms", FOR_EVER_MS, "--logdir", logdir),
            )
            self.assertEqual(ended.code, 0, ended)
            self.assertEqual(
                sorted(path.name for path in recordings(logdir)),
                sorted(f"localhost_{port}.xplane.pb" for port in (one, two)),
            )
            runs = info(logdir)["runs"]
            self.assertEqual(len(runs), 1, "one session is one run")
            self.assertEqual(sorted(runs[0]["hosts"]), sorted(f"localhost_{port}" for port in (one, two)), runs)
            self.assertTrue(at_one_time(recordings(logdir)), "one interval, not one after the other")
            self.assertGreater(runs[0]["start_unix_ns"], begin, runs)
            for path in recordings(logdir):
                self.assertGreater(seen_by_jax(path)["load_batch"], 10)

    def test_levels_are_honoured(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            ended = capture_until_recorded(
                [program],
                *(f"localhost:{port}", "--duration-ms", FOR_EVER_MS, "--logdir", logdir),
                *("--host-tracer-level", 1, "--python-tracer-level", 0),
            )
            self.assertEqual(ended.code, 0, ended)
            events = seen_by_jax(one_recording(logdir))
            self.assertGreater(events["load_batch"], 5, events)
            self.assertFalse([name for name in events if "next_batch" in name], events)

    def test_the_shape_of_collect_profile(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            ended = capture_until_recorded([program], port, FOR_EVER_MS, "--logdir", logdir)
            self.assertEqual(ended.code, 0, ended)
            self.assertGreater(seen_by_jax(one_recording(logdir))["load_batch"], 5)

    def test_received_data_is_kept_and_failed_hosts_are_named(self) -> None:
        nobody = free_port()
        with scratch() as logdir, jax_program() as (_, port):
            ended = stepscope(
                *("capture", f"localhost:{port},localhost:{nobody},no-such-machine.invalid:9012"),
                *("--duration-ms", 200, "--logdir", logdir),
            )
            self.assertEqual(ended.code, 1, ended)
            one_recording(logdir)
            said = ended.out + ended.err
            self.assertRegex(said, rf"localhost:{nobody}.*refused")
            self.assertRegex(said, r"no-such-machine\.invalid:9012.*name not found")

    def test_while_recording_the_program_is_busy(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            first = ("capture", f"localhost:{port}", "--duration-ms", FOR_EVER_MS, "--logdir", logdir)
            with Program([stepscope_binary(), *first, "--session", "first"]) as running:
                program.wait_for_line("recorded")
                ended = stepscope("capture", f"localhost:{port}", "--duration-ms", 100, "--logdir", logdir)
                self.assertEqual(ended.code, 1, ended)
                self.assertRegex(ended.out + ended.err, r"busy")
                running.process.send_signal(signal.SIGINT)
                self.assertEqual(running.wait(), 0, running.text)
            one_recording(logdir)

    def test_an_interrupt_ends_the_interval_and_keeps_the_data(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            command = ("capture", f"localhost:{port}", "--duration-ms", FOR_EVER_MS, "--logdir", logdir)
            with Program([stepscope_binary(), *command]) as running:
                program.wait_for_line("recorded")
                running.process.send_signal(signal.SIGINT)
                self.assertEqual(running.wait(), 0, running.text)
                self.assertGreater(seen_by_jax(one_recording(logdir))["load_batch"], 10, running.text)
            self.assertTrue(program.alive())

    def test_that_the_program_died_is_reported(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            command = ("capture", f"localhost:{port}", "--duration-ms", FOR_EVER_MS, "--logdir", logdir)
            with Program([stepscope_binary(), *command]) as running:
                program.wait_for_line("recorded")
                program.process.kill()
                self.assertEqual(running.wait(), 1, running.text)
                self.assertRegex(running.text, r"connection broke")
            self.assertEqual(recordings(logdir), [])

    def test_the_last_seconds_of_jax_s_continuous_profiling(self) -> None:
        with scratch() as logdir, jax_program() as (program, port):
            address = f"localhost:{port}"
            none = stepscope("capture", address, "--last", "1s", "--logdir", logdir)
            self.assertEqual(none.code, 1, none)
            self.assertRegex(none.out + none.err, "keeps no recent events")
            with wire.channel(port) as channel:
                wire.call(channel, "StartContinuousProfiling", wire.profile_request(0))
            program.wait_for_line("recorded")
            ended = stepscope("capture", address, "--last", "60s", "--logdir", logdir)
            self.assertEqual(ended.code, 0, ended)
            path = one_recording(logdir)
            self.assertGreater(seen_by_jax(path)["load_batch"], 10)
            # The program continues, and can be captured again.
            again = stepscope("capture", address, "--last", "60s", "--logdir", logdir, "--session", "again")
            self.assertEqual(again.code, 0, again)
            self.assertEqual(len(recordings(logdir)), 2)
            with wire.channel(port) as channel:
                wire.call(channel, "StopContinuousProfiling", b"")
            self.assertTrue(program.alive())


class NoProgram(unittest.TestCase):
    def test_a_dead_address_fails_within_its_time(self) -> None:
        # 192.0.2.0/24 is reserved for documentation: no host answers, or the network reports that at once.
        for address, stage in [
            (f"localhost:{free_port()}", "refused"),
            ("192.0.2.1:9012", "timed out|failed|refused"),
        ]:
            with self.subTest(address), scratch() as logdir:
                ended = stepscope("capture", address, "--duration-ms", 100, "--logdir", logdir)
                self.assertEqual(ended.code, 1, ended)
                self.assertRegex(ended.out + ended.err, stage)
                self.assertLess(ended.seconds, WAIT_S, ended)
                self.assertEqual(recordings(logdir), [])
                self.assertFalse((logdir / "plugins").exists(), "a failed capture leaves nothing")


if __name__ == "__main__":
    run_tests()
