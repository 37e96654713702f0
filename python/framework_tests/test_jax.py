"""`stepscope.jax` in place of `jax.profiler`, in real JAX programs."""

import gzip
import inspect
import json
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_sources import SOURCE, events, names_of, program, run_program

EXAMPLE = SOURCE.parents[1] / "examples" / "jax_train" / "train.py"

# A step of a program, compiled.
STEP = """
    import jax, jax.numpy as jnp
    import stepscope.jax as profiler
    step = jax.jit(lambda x: (x @ x).sum())
    x = jnp.ones((64, 64))
    step(x).block_until_ready()
"""


def jax_program(code):
    return program(STEP) + program(code)


class Names(unittest.TestCase):
    def test_every_public_name_of_jax_exists_with_its_parameters(self):
        import jax.profiler as theirs

        import stepscope.jax as ours

        public = [name for name in dir(theirs) if not name.startswith("_")]
        self.assertGreater(len(public), 12)
        for name in public:
            mine = getattr(ours, name)
            self.assertIn(name, ours.__all__)
            if inspect.isfunction(getattr(theirs, name)):
                parameters = list(inspect.signature(getattr(theirs, name)).parameters.values())
                taken = list(inspect.signature(mine).parameters.values())[: len(parameters)]
                self.assertEqual(
                    [(one.name, one.kind, one.default) for one in parameters],
                    [(one.name, one.kind, one.default) for one in taken],
                    name,
                )
        options = theirs.ProfileOptions()
        for name in dir(options):
            if not name.startswith("_"):
                self.assertEqual(getattr(options, name), getattr(ours.ProfileOptions(), name), name)

    def test_unknown_options_suggest_the_right_name(self):
        import jax

        import stepscope.jax as ours

        options = ours.ProfileOptions()
        with self.assertRaisesRegex(AttributeError, "python_tracer_level"):
            options.python_trace_level = 0
        with self.assertRaisesRegex(AttributeError, "tpu_trace_mode"):
            options.advanced_configuration = {"tpu_tracemode": "TRACE_COMPUTE"}
        with self.assertRaisesRegex(ValueError, "TRACE_COMPUTE_AND_SYNC"):
            options.advanced_configuration = {"tpu_trace_mode": "TRACE_COMPUTE_AND_SINC"}
        with self.assertRaises(TypeError):
            ours.start_trace("nowhere", profiler_options=3)
        mistyped = jax.profiler.ProfileOptions()
        mistyped.python_tracer_levl = 0
        with self.assertRaisesRegex(AttributeError, "did you mean 'python_tracer_level'"):
            ours.start_trace("nowhere", profiler_options=mistyped)

    def test_importing_it_imports_no_jax(self):
        told = run_program("import sys, json, stepscope.jax; print(json.dumps('jax' in sys.modules))")
        self.assertFalse(told)


class Sessions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_errors_and_options_equal_those_of_jax(self):
        told = run_program(
            jax_program(
                """
                found = []
                def failed(work):
                    try:
                        work()
                    except (RuntimeError, ValueError) as error:
                        kinds = [isinstance(error, kind) for kind in (RuntimeError, ValueError)]
                        found.append([*kinds, str(error)])
                failed(profiler.stop_trace)
                failed(profiler.stop_server)
                options = jax.profiler.ProfileOptions()
                options.python_tracer_level = 0
                paths = []
                for n in range(3):
                    profiler.start_trace(sys.argv[1], profiler_options=options)
                    if n == 0:
                        failed(lambda: profiler.start_trace(sys.argv[1]))
                    with profiler.TraceAnnotation(f"capture {n}"):
                        step(x)
                    paths.append(str(profiler.stop_trace().path))
                server = profiler.start_server(0)
                failed(lambda: profiler.start_server(0))
                profiler.stop_server()
                mine = profiler.ProfileOptions(session_id="named", host_tracer_level=1)
                with profiler.trace(sys.argv[1], False, True, mine) as recording:
                    step(x)
                paths.append(str(recording.report.path))
                print(json.dumps([found, paths, str(recording.report.trace_json)]))
                """
            ),
            self.folder,
        )
        errors, paths, perfetto = told
        for (is_runtime, is_value, text), start in zip(
            errors,
            (
                "No profile started",
                "No active profiler server.",
                "Profile has already been started. Only one profile may be run at a time.",
                "Only one profiler server can be active at a time.",
            ),
            strict=True,
        ):
            self.assertTrue(text.startswith(start), text)
            self.assertTrue(is_runtime)
            self.assertEqual(is_value, "server" in start)
        self.assertEqual(len(set(paths)), 4)
        for n, path in enumerate(paths[:3]):
            self.assertIn(f"capture {n}".encode(), Path(path).read_bytes())
        self.assertEqual(Path(paths[3]).parent.name, "named")
        self.assertEqual(Path(perfetto).name, "perfetto_trace.json.gz")
        self.assertIn("traceEvents", json.loads(gzip.decompress(Path(perfetto).read_bytes())))

    def test_one_file_contains_labels_calls_and_xla(self):
        told = run_program(
            jax_program(
                """
                def my_python_function():
                    return step(x).block_until_ready()
                with profiler.trace(sys.argv[1]) as recording:
                    for n in range(3):
                        with profiler.StepTraceAnnotation("train", step_num=n):
                            with profiler.TraceAnnotation("inner", rows=3) as label:
                                label.set_metadata(late="yes")
                                my_python_function()
                found = planes(recording.report.path)
                from xprof.convert import raw_to_tool_data
                viewed, kind = raw_to_tool_data.xspace_to_tool_data(
                    [str(recording.report.path)], "trace_viewer", {}
                )
                shown = json.loads(viewed) if not isinstance(viewed, dict) else viewed
                names = sorted({event.get("name", "") for event in shown["traceEvents"]})
                tools = raw_to_tool_data.xspace_to_tool_names([str(recording.report.path)])
                from jax.profiler import ProfileData
                inner = [
                    dict(event.stats)
                    for plane in ProfileData.from_file(str(recording.report.path)).planes
                    for line in plane.lines for event in line.events if event.name == "inner"
                ]
                print(json.dumps(dict(planes=found, names=names, tools=tools, inner=inner)))
                """
            ),
            self.folder,
        )
        planes = told["planes"]
        self.assertLessEqual({"/host:CPU", "Task Environment", "/host:metadata"}, set(planes))
        self.assertLessEqual(
            {"profile_start_time", "profile_stop_time"}, set(planes["Task Environment"][0]["stats"])
        )
        self.assertEqual([stats["late"] for stats in told["inner"]], ["yes"] * 3)
        self.assertEqual(len(events(planes, "train")), 3)
        calls = [name for name in names_of(planes) if name.endswith(" my_python_function")]
        self.assertEqual(len(calls), 1)
        shown = set(told["names"])
        for name in ("inner", "PjitFunction(<lambda>)", calls[0]):
            self.assertIn(name, shown)
        self.assertIn("trace_viewer@", told["tools"])

    def test_decorated_coroutines_are_one_slice(self):
        told = run_program(
            jax_program(
                """
                import asyncio, functools, inspect

                @functools.partial(profiler.annotate_function, name="waits", kind="async")
                async def waits():
                    await asyncio.sleep(0.05)

                @profiler.annotate_function
                def plain():
                    time.sleep(0.01)

                with profiler.trace(sys.argv[1]) as recording:
                    asyncio.run(waits()); plain()
                print(json.dumps(
                    dict(planes=planes(recording.report.path), kept=inspect.iscoroutinefunction(waits))
                ))
                """
            ),
            self.folder,
        )
        self.assertTrue(told["kept"])
        ((start, end),) = events(told["planes"], "waits")
        self.assertGreater(end - start, 49e6)
        self.assertTrue(events(told["planes"], "plain"))

    def test_memory_profiles_are_pprof(self):
        told = run_program(
            jax_program(
                """
                profiler.save_device_memory_profile(sys.argv[1] + "/memory.prof")
                import gzip
                data = gzip.decompress(profiler.device_memory_profile())
                print(json.dumps(b"allocation" in data))
                """
            ),
            self.folder,
        )
        self.assertTrue(told)
        self.assertTrue(gzip.decompress((Path(self.folder) / "memory.prof").read_bytes()))

    def test_module_can_replace_jax_src_profiler(self):
        told = run_program(
            jax_program(
                """
                import subprocess, time
                sys.modules["jax.profiler"] = sys.modules["jax._src.profiler"] = jax.profiler = profiler
                jax._src.profiler = profiler
                profiler.save_device_memory_profile(sys.argv[1] + "/memory.prof")
                child = subprocess.Popen(
                    [
                        sys.executable, "-c",
                        "import stepscope, sys\\n"
                        "print(stepscope.start_server(0).port, flush=True); sys.stdin.read()",
                    ],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
                with child:
                    profiler.register_subprocess(child.pid, int(child.stdout.readline()))()
                    child.stdin.close()
                with jax.profiler.trace(sys.argv[1]) as recording:
                    with jax.profiler.TraceAnnotation("step"):
                        step(x).block_until_ready()
                print(json.dumps(recording.report.spans > 0))
                """
            ),
            self.folder,
        )
        self.assertTrue(told)
        self.assertTrue(gzip.decompress((Path(self.folder) / "memory.prof").read_bytes()))


class InCapturesOfOthers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_install_adds_all_rows_to_captures_of_jax(self):
        told = run_program(
            jax_program(
                """
                from pathlib import Path

                def stock(name):
                    options = jax.profiler.ProfileOptions()
                    options.session_id = name
                    with jax.profiler.trace(sys.argv[1], profiler_options=options):
                        with profiler.StepTraceAnnotation("train", step_num=3):
                            with profiler.TraceAnnotation("label", a=1) as label:
                                label.set_metadata(b=2)
                                step(x).block_until_ready()
                            with stepscope.Trace("ours", n=5):
                                stepscope.counter("loss", 0.5)
                    (path,) = Path(sys.argv[1]).glob(f"plugins/profile/{name}/*.xplane.pb")
                    return planes(path)

                found = dict(before=stock("before"))
                profiler.install(); profiler.install()
                found["installed"] = stock("installed")
                found["again"] = stock("again")
                with profiler.trace(sys.argv[1]) as recording:
                    with profiler.TraceAnnotation("label"):
                        step(x).block_until_ready()
                found["own"] = planes(recording.report.path)
                profiler.uninstall(); profiler.uninstall()
                found["uninstalled"] = stock("uninstalled")
                profiler.install()
                found["third"] = stock("third")
                found["enabled"] = profiler.TraceAnnotation.is_enabled()
                print(json.dumps(found))
                """
            ),
            self.folder,
        )
        custom = "/device:CUSTOM:stepscope"

        def rows(planes):
            return [
                event
                for plane in planes.get(custom, [])
                for line in plane["lines"]
                for event in line["events"]
            ]

        for name in ("before", "uninstalled"):
            self.assertNotIn(custom, told[name])
            self.assertEqual(len(events(told[name], "label")), 1)
        for name in ("installed", "again", "third"):
            planes = told[name]
            self.assertEqual({event[0] for event in rows(planes)}, {"ours", "loss"}, name)
            self.assertEqual(len(events(planes, "label")), 1)
            ((start, end),) = events(planes, "train")
            for _, at, length in rows(planes):
                # One clock.
                self.assertTrue(start <= at and at + length <= end)
        self.assertNotIn(custom, told["own"])
        self.assertEqual(len(events(told["own"], "label")), 1)
        self.assertFalse(told["enabled"])

    def test_two_recordings_at_once_have_each_label_once(self):
        told = run_program(
            jax_program(
                """
                import warnings
                from pathlib import Path
                from jaxlib import _profiler
                folder = Path(sys.argv[1])

                def work():
                    with profiler.StepTraceAnnotation("train", step_num=3):
                        with profiler.TraceAnnotation("label", a=1):
                            step(x).block_until_ready()

                # As JAX's server makes it, of which jax.profiler knows nothing.
                session = _profiler.ProfilerSession()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    profiler.start_trace(folder / "other")
                work()
                other = profiler.stop_trace().path
                alone = folder / "alone.xplane.pb"
                alone.write_bytes(session.stop())
                with profiler.trace(folder / "merged") as recording:
                    work()
                print(json.dumps(dict(
                    other=planes(other), alone=planes(alone), merged=planes(recording.report.path),
                    warned=[str(w.message) for w in caught],
                )))
                """
            ),
            self.folder,
        )
        for name in ("other", "alone", "merged"):
            for label in ("train", "label"):
                self.assertEqual(len(events(told[name], label)), 1, f"{name}: {label}")
        self.assertTrue(any("jax: " in text and "recording already" in text for text in told["warned"]), told)

    def test_fdo_profile_is_returned_without_a_file(self):
        told = run_program(
            jax_program(
                """
                from pathlib import Path
                profiler.start_trace(sys.argv[1] + "/fdo")
                step(x).block_until_ready()
                found = profiler.stop_and_get_fdo_profile()
                try:
                    profiler.stop_and_get_fdo_profile()
                except RuntimeError as error:
                    again = str(error)
                print(json.dumps(dict(
                    kind=type(found).__name__, again=again, recording=stepscope.is_recording(),
                    files=[str(p) for p in Path(sys.argv[1]).rglob("*.pb")],
                )))
                """
            ),
            self.folder,
        )
        self.assertEqual((told["kind"], told["recording"], told["files"]), ("bytes", False, []))
        self.assertIn("No profile started", told["again"])

    def test_registered_subprocesses_are_captured(self):
        told = run_program(
            jax_program(
                """
                import subprocess

                CHILD = (
                    "import sys, time, jax, stepscope.jax as profiler\\n"
                    "if sys.argv[1] == 'ours': print(profiler.start_server(0).port, flush=True)\\n"
                    "else: jax.profiler.start_server(int(sys.argv[1])); print(sys.argv[1], flush=True)\\n"
                    "recorded = 0\\n"
                    "while True:\\n"
                    "    with profiler.TraceAnnotation('in the child'): time.sleep(0.01)\\n"
                    "    recorded = recorded + 1 if profiler.TraceAnnotation.is_enabled() else 0\\n"
                    "    if recorded == 10: print('recorded', flush=True)\\n"
                )
                import socket
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0)); port = free.getsockname()[1]
                found = []
                for kind in ("ours", str(port)):
                    child = subprocess.Popen(
                        [sys.executable, "-c", CHILD, kind], stdout=subprocess.PIPE, text=True
                    )
                    try:
                        undo = profiler.register_subprocess(child.pid, int(child.stdout.readline()))
                        options = profiler.ProfileOptions(python_tracer_level=0)
                        options.advanced_configuration = {"profile_subprocesses": True}
                        with profiler.trace(sys.argv[1], profiler_options=options) as recording:
                            assert child.stdout.readline() == "recorded\\n"
                    finally:
                        child.kill(); child.wait()
                    with profiler.trace(sys.argv[1], profiler_options=options) as without:
                        pass
                    undo()
                    with profiler.trace(sys.argv[1], profiler_options=options) as undone:
                        pass
                    found.append([
                        child.pid, planes(recording.report.path), warnings_of(recording.report),
                        without.report.warnings, undone.report.warnings,
                    ])
                print(json.dumps(found))
                """
            ),
            self.folder,
        )
        for pid, planes, report, without, undone in told:
            plane = f"/host:CPU [{pid}]"
            self.assertIn(plane, planes, report)
            self.assertEqual(report["warnings"], [])
            self.assertIn(f"the registered process {pid} gave nothing", " ".join(without))
            self.assertEqual(undone, [])
            self.assertGreater(len(events({plane: planes[plane]}, "in the child")), 5)

    def test_jax_captures_from_our_server(self):
        """`jax.collect_profile` asks JAX's own server, and ours."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            free_port = unused.getsockname()[1]
        for start in (
            # JAX's server cannot choose its port.
            f"port = {free_port}; profiler.install(); jax.profiler.start_server(port)",
            "port = profiler.start_server(0).port",
        ):
            code = jax_program(
                """
                START
                print(port, flush=True)
                while True:
                    with profiler.TraceAnnotation("label"), stepscope.Trace("ours"):
                        step(x).block_until_ready()
                    time.sleep(0.001)
                """
            ).replace("START", start)
            with self.subTest(start):
                running = subprocess.Popen(
                    [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
                )
                try:
                    port = running.stdout.readline().strip()
                    self.assertRegex(port, r"^\d+$")
                    names = {b"ours", b"label", b"PjitFunction"}
                    # On a busy machine no step may end in a short time.
                    for milliseconds in (2_000, 10_000, 50_000):
                        data = self.captured_by_jax(port, milliseconds)
                        found = {name for name in names if name in data}
                        if found == names:
                            break
                    self.assertEqual(found, names)
                finally:
                    running.kill()
                    running.wait()
                    running.stdout.close()

    def captured_by_jax(self, port, milliseconds):
        """The file that `jax.collect_profile` writes."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "jax.collect_profile", port, str(milliseconds)),
                    *(f"--log_dir={folder}", "--no_perfetto_link", "--python_tracer_level=0"),
                ],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            files = list(Path(folder).glob("plugins/profile/*/*.xplane.pb"))
            self.assertEqual(len(files), 1, done.stdout + done.stderr)
            return files[0].read_bytes()


class Example(unittest.TestCase):
    def test_training_program_of_the_guide_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, EXAMPLE, folder, "5"],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            first, last = (float(word) for word in done.stdout.split(";")[0].split()[1::2])
            self.assertLess(last, first)
            shown = subprocess.run(
                [sys.executable, "-m", "stepscope", "info", folder],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("JAX", shown.stdout)
            self.assertRegex(shown.stdout, r"steps +5")
            (path,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
            data = path.read_bytes()
            for name in (b"update", b"load", b"PjitFunction(update)", b"train.py"):
                self.assertIn(name, data)
            self.assertTrue(path.with_name("memory.prof").exists())


if __name__ == "__main__":
    unittest.main()
