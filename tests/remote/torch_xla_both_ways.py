"""
Tests of captures between PyTorch/XLA and stepscope, in both directions.

    STEPSCOPE_TORCH_XLA_PYTHON=… STEPSCOPE_BIN=… STEPSCOPE_SERVE=… python torch_xla_both_ways.py [TEST…]

PyTorch/XLA's server uses an older protocol: it returns no data, but writes a file below the directory that
the client names. Its client, `xp.trace`, uses that protocol, too.
"""

from __future__ import annotations

import unittest

from programs import (
    HERE,
    INTERVAL_MS,
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
    torch_xla_program,
    torch_xla_python,
)


class TorchXlaBothWays(unittest.TestCase):
    def test_stepscope_captures_from_an_older_server(self) -> None:
        with scratch() as logdir, torch_xla_program() as (program, port):
            ended = stepscope(
                *("capture", f"localhost:{port}", "--duration-ms", INTERVAL_MS),
                *("--logdir", logdir, "--session", "older"),
            )
            self.assertEqual(ended.code, 0, ended)
            path = one_recording(logdir)
            self.assertEqual(path.parent.name, "older")
            self.assertIn(str(path), ended.out, ended)
            events = seen_by_jax(path)
            self.assertGreater(events["forward"], 5, events)
            self.assertGreater(events["SyncTensorsGraph"], 5, events)
            steps = steps_seen_by_jax(path, "train")
            self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "a step is missing")
            self.assertEqual(info(logdir)["runs"][0]["steps"], len(steps))
            # The program is in the same state for the second capture.
            again = stepscope("capture", f"localhost:{port}", "--duration-ms", 100, "--logdir", logdir)
            self.assertEqual(again.code, 0, again)
            self.assertEqual(len(recordings(logdir)), 2)
            # An unsupported option is reported.
            past = stepscope("capture", f"localhost:{port}", "--last", "1s", "--logdir", logdir)
            self.assertEqual(past.code, 1, past)
            self.assertRegex(past.out + past.err, "keeps no recent events")
            self.assertEqual(program.terminate(), 0, program.text)

    def test_xp_trace_captures_from_our_program(self) -> None:
        # The second program may write below the directory that the client names; the first may not.
        with (
            scratch() as one,
            scratch() as two,
            our_program() as (in_the_answer, port_one),
            our_program("--allow", two) as (on_the_disk, port_two),
        ):
            where = (f"localhost:{port_one}", one, f"localhost:{port_two}", two)
            ended = run(torch_xla_python(), HERE / "torch_xla_trace.py", INTERVAL_MS, *where)
            self.assertEqual(ended.code, 0, ended)
            for logdir in (one, two):
                path = one_recording(logdir)
                events = seen_by_jax(path)
                steps = steps_seen_by_jax(path, "train")
                self.assertGreaterEqual(len(steps), 2, events)
                self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "a step is missing")
                self.assertGreaterEqual(events["forward"], len(steps) - 1, events)
                shown, groups = seen_by_xprof(path)
                self.assertEqual(shown["forward"], events["forward"])
                self.assertGreaterEqual(groups, len(steps) - 1)
            self.assertTrue(in_the_answer.alive() and on_the_disk.alive())


if __name__ == "__main__":
    run_tests()
