"""One capture, all sources: real frameworks, each test a program of its own."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def run_program(code, *arguments, timeout=120, **environment):
    """Run a program; the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu", **environment},
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


# What the programs below share: a summary of a file, as jax.profiler reads it.
PRELUDE = """
    import json, sys, threading, time, warnings
    import stepscope

    def planes(path):
        from jax.profiler import ProfileData
        found = {}
        for plane in ProfileData.from_file(str(path)).planes:
            lines = found.setdefault(plane.name, [])
            lines.append(dict(
                stats={str(key): str(value) for key, value in plane.stats},
                lines=[
                    dict(name=line.name, events=[[e.name, e.start_ns, e.duration_ns] for e in line.events])
                    for line in plane.lines
                ],
            ))
        return found

    def warnings_of(report):
        return dict(
            path=str(report.path),
            warnings=list(report.warnings),
            sources=[[s.name, s.started, s.reason, s.events, s.stop_s] for s in report.sources],
        )
"""


def program(code):
    return textwrap.dedent(PRELUDE) + textwrap.dedent(code)


def events(planes, name):
    """Start and end of the events of a name, on all host planes, in nanoseconds."""
    return [
        (start, start + length)
        for key, several in planes.items()
        if key.startswith("/host:")
        for plane in several
        for line in plane["lines"]
        for event, start, length in line["events"]
        if event == name
    ]


class Sources(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def assert_inside(self, inner, outer):
        """Each interval of `inner` lies within one of `outer`."""
        self.assertTrue(inner)
        for start, end in inner:
            self.assertTrue(any(begin <= start and end <= stop for begin, stop in outer), (start, end, outer))

    def test_jax_is_on_our_clock_and_in_our_plane(self):
        told = run_program(
            program(
                """
                import jax, jax.numpy as jnp
                step = jax.jit(lambda x: (x @ x).sum())
                x = jnp.ones((100, 100))
                step(x).block_until_ready()
                time.sleep(0.01)
                with stepscope.trace(sys.argv[1]) as recording:
                    for n in range(3):
                        with stepscope.StepTrace("train", step_num=n):
                            step(x).block_until_ready()
                        time.sleep(0.01)
                print(json.dumps({**warnings_of(recording.report), "planes": planes(recording.report.path)}))
                """
            ),
            self.folder,
        )
        self.assertEqual([source[:3] for source in told["sources"]], [["jax", True, None]])
        self.assertGreater(told["sources"][0][3], 6)
        self.assertEqual(told["warnings"], [])
        planes = told["planes"]
        self.assertEqual(len(planes["/host:CPU"]), 1)
        steps = events(planes, "train")
        self.assertEqual(len(steps), 3)
        calls = events(planes, "PjitFunction(<lambda>)")
        self.assertGreaterEqual(len(calls), 3)
        self.assert_inside(calls, steps)
        (environment,) = planes["Task Environment"]
        self.assertIn("profile_start_time", environment["stats"])
        self.assertEqual(planes["/host:metadata"][0]["stats"]["jax_version"][0], "0")

    def test_torch_is_on_our_clock_with_its_arguments(self):
        told = run_program(
            program(
                """
                import torch
                x = torch.ones(64, 64)
                with stepscope.trace(sys.argv[1]) as recording:
                    with stepscope.Trace("outer"):
                        (x @ x).sum().item()
                    thread = threading.Thread(target=lambda: torch.sigmoid(x))
                    thread.start(); thread.join()
                print(json.dumps({**warnings_of(recording.report), "planes": planes(recording.report.path)}))
                """
            ),
            self.folder,
        )
        self.assertEqual([source[:3] for source in told["sources"]], [["torch", True, None]])
        self.assertEqual(told["warnings"], [])
        self.assert_inside(events(told["planes"], "aten::mm"), events(told["planes"], "outer"))
        # Of every thread.
        self.assertTrue(events(told["planes"], "aten::sigmoid"))
        data = Path(told["path"]).read_bytes()
        for argument in (b"Input Dims", b"External id", b"cpu_op"):
            self.assertIn(argument, data)
        # Not what kineto says of its own, temporary file, nor that there is no GPU.
        for noise in (b"/stepscope-", b"gpuGetDeviceCount"):
            self.assertNotIn(noise, data)

    def test_several_frameworks_in_one_file_and_a_choice_of_them(self):
        told = run_program(
            program(
                """
                import jax, jax.numpy as jnp, torch, torch_xla
                step = jax.jit(lambda x: (x @ x).sum())
                x = jnp.ones((100, 100)); step(x).block_until_ready()
                y = torch.ones(10, 10, device="xla"); (y @ y).sum().item()

                def work():
                    with stepscope.Trace("labelled"):
                        step(x).block_until_ready(); (y @ y).sum().item()

                reports = []
                for sources in ("auto", ["torch_xla"], []):
                    with stepscope.trace(sys.argv[1], sources=sources) as recording:
                        work()
                    reports.append({**warnings_of(recording.report), "planes": planes(recording.report.path)})
                print(json.dumps(reports))
                """
            ),
            self.folder,
        )
        names = [[source[0] for source in report["sources"]] for report in told]
        self.assertEqual(names, [["jax", "torch", "torch_xla"], ["torch_xla"], []])
        self.assertTrue(all(source[1] and source[3] > 0 for report in told for source in report["sources"]))
        everything, one, none = (report["planes"] for report in told)
        ours = events(everything, "labelled")
        self.assertEqual(len(ours), 1)
        self.assert_inside(events(everything, "PjitFunction(<lambda>)"), ours)
        self.assert_inside(events(everything, "SyncTensorsGraphInternal"), ours)
        self.assert_inside(events(everything, "aten::matmul"), ours) if events(
            everything, "aten::matmul"
        ) else None
        self.assertFalse(events(one, "PjitFunction(<lambda>)"))
        self.assertTrue(events(one, "SyncTensorsGraphInternal"))
        self.assertFalse(events(none, "SyncTensorsGraphInternal"))
        self.assertEqual(len(everything["/host:CPU"]), 1)

    def test_source_that_cannot_start_is_a_warning(self):
        told = run_program(
            program(
                """
                import jax, jax.numpy as jnp, torch
                x = jnp.ones(3)
                warnings.simplefilter("ignore")
                reports = []
                jax.profiler.start_trace(sys.argv[1])
                with stepscope.trace(sys.argv[1]) as recording:
                    (x + 1).block_until_ready(); torch.ones(3) + 1
                reports.append(warnings_of(recording.report))
                jax.profiler.stop_trace()
                from jaxlib import _profiler
                hidden = _profiler.ProfilerSession(_profiler.ProfileOptions())
                with stepscope.trace(sys.argv[1], sources=["jax"]) as recording:
                    (x + 1).block_until_ready()
                reports.append({**warnings_of(recording.report), "mine": len(hidden.stop())})
                with torch.profiler.profile() as mine:
                    with stepscope.trace(sys.argv[1]) as recording:
                        torch.ones(3) + 1
                reports.append({**warnings_of(recording.report), "mine": len(mine.events())})
                with stepscope.trace(sys.argv[1], sources=["torch"]) as recording:
                    with torch.profiler.profile() as mine:
                        torch.ones(3) + 1
                reports.append({**warnings_of(recording.report), "mine": len(mine.events())})
                with stepscope.trace(sys.argv[1], sources=["torch_xla"]) as recording:
                    pass
                reports.append(warnings_of(recording.report))
                try:
                    options = stepscope.ProfileOptions(raise_error_on_start_failure=True)
                    stepscope.start_trace(sys.argv[1], sources=["torch_xla"], options=options)
                except RuntimeError as error:
                    reports.append(str(error))
                reports.append(stepscope.is_recording())
                print(json.dumps(reports))
                """
            ),
            self.folder,
        )
        busy_jax, hidden, busy_torch, taken, absent, error, recording = told
        jax, torch = busy_jax["sources"]
        self.assertEqual((jax[:2], torch[:2]), (["jax", False], ["torch", True]))
        self.assertIn("jax.profiler is recording already", jax[2])
        self.assertIn(jax[2], busy_jax["warnings"][0])
        self.assertFalse(hidden["sources"][0][1])
        self.assertIn("jax.profiler is recording already", hidden["sources"][0][2])
        self.assertGreater(hidden["mine"], 0)
        self.assertIn("torch.profiler is recording already", busy_torch["sources"][1][2])
        self.assertGreater(busy_torch["mine"], 0)
        self.assertIn("took over", taken["sources"][0][2])
        self.assertGreater(taken["mine"], 0)
        self.assertIn("has not imported torch_xla", absent["sources"][0][2])
        self.assertIn("torch_xla", error)
        self.assertFalse(recording)

    def test_captures_contain_the_sources(self):
        told = run_program(
            program(
                """
                import jax, jax.numpy as jnp, torch
                step = jax.jit(lambda x: (x @ x).sum())
                x = jnp.ones((100, 100)); step(x).block_until_ready()
                from stepscope.recording._captures import captures

                done = threading.Event()
                # Rounds that all sources record, and one that may have begun before.
                rounds = 0

                def busy():
                    global rounds
                    while not done.is_set():
                        with stepscope.Trace("round"):
                            step(x).block_until_ready(); torch.ones(4) + 1
                        rounds += captures.begun
                        done.wait(0.002)

                thread = threading.Thread(target=busy); thread.start()
                with stepscope.start_server(0) as server:
                    report = stepscope.capture(
                        f"{server.host}:{server.port}",
                        sys.argv[1],
                        duration_ms=600_000,
                        end_when=lambda: rounds > 20,
                    )
                done.set(); thread.join()
                host = report.hosts[0]
                print(json.dumps(dict(warnings=host.warnings, planes=planes(host.path))))
                """
            ),
            self.folder,
        )
        planes = told["planes"]
        rounds = events(planes, "round")
        self.assertGreater(len(rounds), 3)
        self.assertGreater(len(events(planes, "PjitFunction(<lambda>)")), 3)
        self.assertGreater(len(events(planes, "aten::add")), 3)
        self.assertTrue(any(name.endswith(" busy") or name.startswith("$") for name in names_of(planes)))

    def test_unknown_source_suggests_the_nearest(self):
        told = run_program(
            program(
                """
                found = []
                for sources in (["jaxx"], "touch", [3], 7):
                    try:
                        stepscope.start_trace(sys.argv[1], sources=sources)
                    except stepscope.StepscopeError as error:
                        found.append([type(error).__name__, str(error)])
                print(json.dumps(found))
                """
            ),
            self.folder,
        )
        self.assertEqual(
            [kind for kind, _ in told],
            ["OptionValueError", "OptionValueError", "OptionTypeError", "OptionTypeError"],
        )
        self.assertIn("'jax'", told[0][1])
        self.assertIn("'torch'", told[1][1])

    def test_sources_import_no_framework(self):
        told = run_program(
            program(
                """
                with stepscope.trace(sys.argv[1]) as recording:
                    pass
                loaded = [name for name in ("jax", "torch", "torch_xla", "numpy") if name in sys.modules]
                print(json.dumps([warnings_of(recording.report), loaded]))
                """
            ),
            self.folder,
        )
        self.assertEqual((told[0]["sources"], told[1]), ([], []))

    def test_sources_survive_forks_exits_and_interrupts(self):
        for ending in ("os._exit(0)", "sys.exit(0)", "raise KeyboardInterrupt"):
            with self.subTest(ending), tempfile.TemporaryDirectory() as folder:
                code = f"""
                import os, sys, torch, stepscope, warnings
                warnings.simplefilter("ignore")
                stepscope.start_trace({folder!r})
                torch.ones(3) + 1
                with stepscope.Trace("before"):
                    pass
                pid = os.fork()
                if pid == 0:
                    torch.ones(3)
                    os._exit(3)
                assert os.waitpid(pid, 0)[1] >> 8 == 3
                {ending}
                """
                done = subprocess.run(
                    [sys.executable, "-c", textwrap.dedent(code)],
                    capture_output=True,
                    timeout=60,
                    check=False,
                )
                del done
                if ending == "os._exit(0)":
                    subprocess.run(
                        [sys.executable, "-m", "stepscope", "recover", folder],
                        check=True,
                        capture_output=True,
                        timeout=60,
                    )
                (path,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
                data = path.read_bytes()
                self.assertIn(b"before", data)
                self.assertEqual(b"aten::add" in data, ending != "os._exit(0)")


def names_of(planes):
    """Names of all events."""
    return {
        event[0]
        for several in planes.values()
        for plane in several
        for line in plane["lines"]
        for event in line["events"]
    }


if __name__ == "__main__":
    unittest.main()
