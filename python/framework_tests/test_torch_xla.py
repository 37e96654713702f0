"""`stepscope.torch_xla` compared with the original, on the CPU: each test a program of its own."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import test_sources

ROOT = Path(__file__).parents[2]
XLA = "PjRtComputationClient::"


def environment(**more):
    return {**os.environ, "PJRT_DEVICE": "CPU", **more}


def run_program(code, *arguments, **more):
    return test_sources.run_program(code, *arguments, **more)


def info(path):
    """What our own reader says of a log directory."""
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "info", "--json", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


class Captured(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_mnist_example_runs(self):
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "examples/torch_xla_mnist/mnist.py"),
                *(str(self.folder), "5", "0"),
            ],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        (run,) = info(self.folder)["runs"]
        self.assertEqual(run["steps"], 5)
        found = run_program(
            """
            import json, sys
            import stepscope
            (run,) = stepscope.open(sys.argv[1]).runs
            names = {}
            for track in run.tracks:
                for piece in track.slices:
                    names[piece.name] = names.get(piece.name, 0) + 1
            print(json.dumps(names))
            """,
            self.folder,
        )
        labels = (
            *("train", "data_prep_and_forward", "forward", "convolutions", "dense"),
            *("loss_and_backward", "optimizer_step_host"),
        )
        for label in labels:
            # Once each: PyTorch/XLA's recorder, which runs along, does not repeat them.
            self.assertEqual(found[label], 5, label)
        for call in ("TransferToDevice", "Compile", "ExecuteComputation"):
            self.assertGreater(sum(n for name, n in found.items() if name.startswith(XLA + call)), 0, call)

    def test_labels_enclose_the_events_of_xla_on_one_clock(self):
        found = run_program(
            test_sources.program(
                """
                import torch, torch_xla
                import stepscope.torch_xla as xp
                device = torch_xla.device()
                xp.start_trace(sys.argv[1], options=stepscope.ProfileOptions(python_tracer_level=0))
                with xp.StepTrace("train", step_num=4):
                    with xp.Trace("forward"):
                        x = torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
                xp.stop_trace()
                import glob
                print(json.dumps(planes(glob.glob(sys.argv[1] + "/plugins/profile/*/*.xplane.pb")[0])))
                """
            ),
            self.folder,
        )
        ((begin, end),) = test_sources.events(found, "train")
        executed = [
            span
            for plane in found.values()
            for part in plane
            for line in part["lines"]
            for name, start, length in line["events"]
            if name.startswith("SyncTensorsGraph") or name.startswith("SyncLiveTensorsGraph")
            for span in [(start, start + length)]
        ]
        self.assertTrue(executed)
        for start, stop in executed:
            # The step ends with the sync.
            self.assertLess(begin, start + 50_000)
            self.assertGreater(end, stop - 50_000)

    def test_torch_profiler_records_along_on_request_only(self):
        found = run_program(
            test_sources.program(
                """
                import torch, torch_xla
                import stepscope.torch_xla as xp
                torch_xla.device()
                told = []
                for more in ({}, {"sources": "auto"}, {"sources": []}):
                    xp.start_trace(sys.argv[1], **more)
                    told.append([source.name for source in xp.stop_trace().sources])
                with xp.start_server(0, sources=["torch_xla"]) as server:
                    told.append(server.port > 0)
                print(json.dumps(told))
                """
            ),
            self.folder,
        )
        self.assertEqual(found, [["torch_xla"], ["torch", "torch_xla"], [], True])

    def test_client_of_torch_xla_receives_labels_and_xla_events(self):
        program = subprocess.Popen(
            [
                sys.executable,
                "-c",
                """
import os, torch, torch_xla
import stepscope.torch_xla as xp
device = torch_xla.device()
server = xp.start_server(0)
print(server.port, flush=True)
step = 0
# The client may take long to start: as long as the test is there.
parent = os.getppid()
while os.getppid() == parent:
    with xp.StepTrace("train", step_num=step):
        with xp.Trace("forward"):
            loss = torch.ones(32, 32, device=device).tanh().sum()
    loss.item()
    step += 1
                """,
            ],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        try:
            port = program.stdout.readline().strip()
            self.assertRegex(port, r"^\d+$")
            found = run_program(
                """
                import glob, json, sys
                import torch_xla.debug.profiler as xp
                # On a busy machine no step may end in a short time.
                for duration_ms in (2_000, 8_000, 32_000):
                    folder = f"{sys.argv[2]}/{duration_ms}"
                    xp.trace(f"localhost:{sys.argv[1]}", folder, duration_ms=duration_ms, timeout_s=60)
                    (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
                    data = open(path, "rb").read()
                    found = [text.encode() in data for text in sys.argv[3:]]
                    if all(found):
                        break
                print(json.dumps(found))
                """,
                port,
                self.folder,
                *("train", "forward", f"{XLA}ExecuteComputation"),
            )
        finally:
            program.kill()
            program.communicate()
        self.assertEqual(found, [True] * 3)

    def test_session_of_torch_xla_contains_our_labels(self):
        found = run_program(
            """
            import glob, json, sys, tempfile
            import torch, torch_xla
            import torch_xla.debug.profiler as theirs
            import stepscope.torch_xla as xp
            device = torch_xla.device()
            theirs.start_trace(sys.argv[1])
            with xp.StepTrace("train", step_num=9, note="n"):
                with xp.Trace("forward", rows=3):
                    torch.ones(3, device=device).sum().item()
            theirs.stop_trace()
            from jax.profiler import ProfileData
            (path,) = glob.glob(sys.argv[1] + "/**/*.xplane.pb", recursive=True)
            stats = {}
            for plane in ProfileData.from_file(path).planes:
                for line in plane.lines:
                    for event in line.events:
                        if event.name in ("train", "forward"):
                            stats[event.name] = {k: v for k, v in event.stats if k}
            print(json.dumps(stats))
            """,
            self.folder,
        )
        self.assertEqual(
            (found["train"]["step_num"], found["train"]["_r"], found["train"]["note"]), (9, 1, "n")
        )
        self.assertEqual(found["forward"]["rows"], 3)

    def test_two_recordings_at_once_have_each_label_once(self):
        found = run_program(
            """
            import json, sys, warnings
            from pathlib import Path
            import torch, torch_xla
            import torch_xla.debug.profiler as theirs
            import stepscope
            import stepscope.torch_xla as xp
            from jax.profiler import ProfileData
            device = torch_xla.device()
            folder = Path(sys.argv[1])

            def count(path):
                names = [e.name for p in ProfileData.from_file(str(path)).planes for l in p.lines
                    for e in l.events]
                return [names.count(name) for name in ("train", "forward")]

            def work():
                with xp.StepTrace("train", step_num=9):
                    with xp.Trace("forward"):
                        torch.ones(3, device=device).sum().item()

            theirs.start_trace(str(folder / "theirs"))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                xp.start_trace(folder / "ours")
            work()
            beside = xp.stop_trace().path
            theirs.stop_trace()
            (alone,) = (folder / "theirs").rglob("*.xplane.pb")
            xp.start_trace(folder / "merged")
            work()
            merged = xp.stop_trace().path
            print(json.dumps({
                "counts": [count(beside), count(alone), count(merged)],
                "warned": [str(w.message) for w in caught],
            }))
            """,
            self.folder,
        )
        self.assertEqual(found["counts"], [[1, 1]] * 3)
        self.assertTrue(
            any("torch_xla: " in told and "recording already" in told for told in found["warned"]), found
        )


class Scopes(unittest.TestCase):
    def run_with(self, code, **more):
        return run_program(code, **more)

    def test_labels_name_the_compiled_operations(self):
        code = """
            import json, torch, torch_xla
            import stepscope.torch_xla as xp
            device = torch_xla.device()
            with xp.Trace("outer"):
                with xp.Trace("inner"):
                    y = torch.ones(4, device=device).sin()
            text = torch_xla._XLAC._get_xla_tensors_hlo([y])
            torch_xla.sync()
            print(json.dumps([line for line in text.splitlines() if "sine" in line]))
        """
        (named,) = [line for line in self.run_with(code, XLA_HLO_DEBUG="1") if " sine(" in line]
        self.assertRegex(named, r'op_name="outer\.\d+/inner\.\d+/aten__sin')
        (plain,) = [line for line in self.run_with(code) if " sine(" in line]
        self.assertNotIn("outer", plain)

    def test_sync_inside_a_label_works(self):
        code = """
            import gc, json, threading, torch, torch_xla
            import stepscope.torch_xla as xp
            device = torch_xla.device()
            if not torch_xla._XLAC._get_ir_debug():
                # The original refuses this one.
                with xp.Trace("around"):
                    torch.ones(3, device=device).sum()
                    torch_xla.sync()
            try:
                with xp.Trace("raises"):
                    raise ValueError
            except ValueError:
                pass
            torch_xla.sync()
            label = xp.Trace("wanders")
            label.__enter__()
            thread = threading.Thread(target=label.__exit__, args=(None, None, None))
            thread.start(); thread.join()
            def waits():
                with xp.Trace("never finished"):
                    yield
            waiting = waits()
            next(waiting)
            del waiting
            gc.collect()
            thread = threading.Thread(target=xp.Trace("of a thread that ends").__enter__)
            thread.start(); thread.join(); del thread
            gc.collect()
            with xp.Trace("next"):
                pass
            torch_xla.sync()
            print(json.dumps("whole"))
        """
        for debug in ("0", "1"):
            self.assertEqual(self.run_with(code, XLA_IR_DEBUG=debug), "whole")

    def test_loader_and_step_trace_share_the_marked_step_flag(self):
        found = run_program(
            """
            import json, torch, torch_xla
            import torch_xla.debug.profiler as theirs
            import torch_xla.distributed.parallel_loader as pl
            import stepscope.torch_xla as xp
            seen = []
            loader = pl.MpDeviceLoader([torch.ones(2)] * 3, torch_xla.device())
            for n, data in enumerate(loader):
                with xp.StepTrace("train", step_num=n):
                    seen.append(theirs.get_tracer_marked_step())
                    data.sum()
            print(json.dumps([seen, xp.get_tracer_marked_step()]))
            """
        )
        self.assertEqual(found, [[True] * 3, False])

    def test_benchmark_of_a_label_runs(self):
        done = subprocess.run(
            [sys.executable, str(ROOT / "benches/peers/python_torch_xla.py")],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        figures = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(figures), 3, done.stderr)
        for figure in figures:
            self.assertEqual(set(figure), {"name", "ns", "peer", "peer_ns"})
            self.assertGreater(figure["peer_ns"], figure["ns"])


if __name__ == "__main__":
    unittest.main()
