import ast
import contextlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from recorded import run_python

import stepscope
import stepscope.jax
import stepscope.lightning
import stepscope.neuron
import stepscope.read
import stepscope.torch
import stepscope.torch_xla
from stepscope import _core

FACES = (
    *(stepscope.jax, stepscope.lightning, stepscope.neuron),
    *(stepscope.read, stepscope.torch, stepscope.torch_xla),
)
# Classes that programs use as they use functions.
VERBS = {"Trace", "StepTrace", "TraceAnnotation", "StepTraceAnnotation", "trace", "profile"}

PEERS = os.environ.get("STEPSCOPE_PEERS_PYTHON")


def with_docstrings_of_the_extension(stub):
    """The text of a stub whose docstrings are those of the built extension, and their number."""
    nodes = []
    for node in ast.parse(stub).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            built = getattr(_core, node.name)
            nodes.append((node, built))
            nodes += [
                (member, getattr(built, member.name, None))
                for member in node.body
                if isinstance(node, ast.ClassDef) and isinstance(member, ast.FunctionDef)
            ]
    lines, count = stub.splitlines(), 0
    for node, built in reversed(nodes):
        if ast.get_docstring(node) is not None:
            place = node.body[0]
            text = inspect.getdoc(built)
            new = ['"""', *text.splitlines(), '"""'] if "\n" in text else [f'"""{text}"""']
            lines[place.lineno - 1 : place.end_lineno] = [
                (" " * place.col_offset + line).rstrip() for line in new
            ]
            count += 1
    return "\n".join(lines) + "\n", count


def module_name(path, root):
    return ".".join(["stepscope", *path.relative_to(root).with_suffix("").parts])


class Package(unittest.TestCase):
    def test_modules_are_imported_on_attribute_access(self):
        done = run_python(
            """
            import sys, stepscope
            assert "stepscope.jax" not in sys.modules
            for name in ("jax", "torch", "torch_xla", "neuron", "lightning", "read"):
                assert getattr(stepscope, name) is sys.modules["stepscope." + name], name
                assert name in dir(stepscope)
            assert not {"jax", "torch", "torch_xla", "lightning"}.intersection(sys.modules)
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_name_in_all_exists(self):
        self.assertEqual(sorted(stepscope.__all__), sorted(set(stepscope.__all__)))
        for name in stepscope.__all__:
            self.assertTrue(hasattr(stepscope, name), name)

    def test_public_callables_have_docstrings(self):
        for name in stepscope.__all__:
            thing = getattr(stepscope, name)
            if callable(thing):
                self.assertTrue(inspect.getdoc(thing), name)

    def test_public_functions_document_parameters_and_an_example(self):
        looked_at = 0
        for module in (stepscope, *FACES):
            for name in module.__all__:
                if module is stepscope.torch and name in stepscope.torch._REEXPORTED:
                    continue
                # The last needs torch itself.
                if (module, name) == (stepscope.torch, "profile"):
                    continue
                thing = getattr(module, name)
                is_verb = isinstance(thing, type) and name in VERBS
                if not is_verb and not inspect.isroutine(thing):
                    continue
                text = inspect.getdoc(thing)
                self.assertRegex(text, r"(?m)^Examples\n-{8}\n>>> ", name)
                parameters = inspect.signature(thing).parameters
                if parameters and module is not stepscope.torch_xla:
                    self.assertRegex(text, r"(?m)^Parameters\n-{10}\n", name)
                looked_at += 1
        self.assertGreater(looked_at, 45)

    def test_package_carries_the_collector_of_cuda_devices(self):
        library = Path(stepscope.__file__).with_name("libstepscope_cupti.so")
        # The driver loads it so; without a log directory it does nothing.
        program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).InitializeInjection())"
        environment = {key: value for key, value in os.environ.items() if key != "STEPSCOPE_LOG_DIR"}
        ended = subprocess.run(
            [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        self.assertEqual((ended.stdout, ended.stderr), ("1\n", ""))

    def test_package_carries_the_collector_of_amd_devices(self):
        library = Path(stepscope.__file__).with_name("libstepscope_rocm.so")
        # rocprofiler-register calls it so; without a log directory it does nothing.
        program = (
            f"import ctypes; library = ctypes.CDLL({str(library)!r}); "
            "print(library.rocprofiler_set_api_table(b'hip', ctypes.c_uint64(0), ctypes.c_uint64(0), None, "
            "ctypes.c_uint64(0)))"
        )
        environment = {key: value for key, value in os.environ.items() if key != "STEPSCOPE_LOG_DIR"}
        ended = subprocess.run(
            [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        # No tool takes the tables.
        self.assertEqual((ended.stdout, ended.stderr), ("1\n", ""))

    def test_stub_repeats_the_docstrings_of_the_extension(self):
        stub = Path(_core.__file__).with_name("_core.pyi")
        text = stub.read_text()
        expected, count = with_docstrings_of_the_extension(text)
        source = Path(__file__).parents[1] / "src/stepscope/_core.pyi"
        if os.environ.get("STEPSCOPE_BLESS") == "1":
            source.write_text(with_docstrings_of_the_extension(source.read_text())[0])
            return
        self.assertEqual(text, expected, "write the stub with STEPSCOPE_BLESS=1")
        self.assertGreater(count, 20)

    def test_stub_declares_what_the_extension_has(self):
        tree = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
        promised = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                promised[node.name] = node.args
            elif isinstance(node, ast.ClassDef):
                promised[node.name] = node
            elif isinstance(node, ast.AnnAssign):
                promised[node.target.id] = None
        built = {name for name in vars(_core) if not name.startswith("__") or name == "__version__"}
        promised_names = {name for name in promised if not name.startswith("_") or name == "__version__"}
        self.assertEqual(promised_names, built - {"_core"})
        for name, args in promised.items():
            thing = getattr(_core, name, None)
            if isinstance(args, ast.arguments):
                parameters = inspect.signature(thing).parameters
                expected = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
                expected += [args.kwarg.arg] if args.kwarg else []
                self.assertEqual(list(parameters), expected, name)
                positional = [
                    parameter.name
                    for parameter in parameters.values()
                    if parameter.kind == parameter.POSITIONAL_ONLY
                ]
                self.assertEqual(positional, [arg.arg for arg in args.posonlyargs], name)
            elif isinstance(args, ast.ClassDef):
                members = {node.name for node in args.body if isinstance(node, ast.FunctionDef)}
                own = {member for member in vars(thing) if not member.startswith("__")}
                # Before 3.12 the buffer protocol has no name in Python.
                self.assertLessEqual(members - {"__new__", "__buffer__"}, set(dir(thing)))
                self.assertEqual({member for member in members if not member.startswith("__")}, own, name)

    def test_modules_import_each_other_in_no_circle(self):
        root = Path(stepscope.__file__).parent
        imports = {module_name(path, root): set() for path in root.rglob("*.py") if path.stem != "__init__"}
        for path in root.rglob("*.py"):
            if path.stem == "__init__":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                imports[module_name(path, root)].update(imports.keys() & set(names))
        self.assertIn("stepscope.recording._sources", imports["stepscope.recording._session"])
        while leaves := {name for name, others in imports.items() if not others}:
            imports = {name: others - leaves for name, others in imports.items() if name not in leaves}
        self.assertEqual(imports, {})

    def test_package_is_marked_as_typed(self):
        self.assertTrue(Path(stepscope.__file__).with_name("py.typed").exists())

    def test_import_avoids_slow_standard_modules(self):
        # Of the standard library what a session needs now and then: a sixth of the time.
        done = run_python(
            "import sys; before = set(sys.modules); import stepscope; print(*(set(sys.modules) - before))"
        )
        later = {"difflib", "hashlib", "platform", "shutil", "subprocess", "tempfile"}
        self.assertEqual(later & set(done.stdout.split()), set(), done.stderr)

    def test_import_imports_no_framework(self):
        done = run_python(
            """
            import sys, time
            before = set(sys.modules)
            import stepscope
            new = {name.split(".")[0] for name in set(sys.modules) - before}
            print(sorted(name for name in new if name not in sys.stdlib_module_names))
            """
        )
        self.assertEqual(done.stdout.strip(), "['stepscope']", done.stderr)

    def test_version_is_that_of_the_crate(self):
        self.assertRegex(stepscope.__version__, r"^\d+\.\d+\.\d+$")


class Command(unittest.TestCase):
    def run_command(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "stepscope", *arguments], capture_output=True, text=True, check=False
        )

    def test_command_has_exit_codes_and_streams(self):
        version = self.run_command("--version")
        self.assertEqual(
            (version.returncode, version.stdout.strip()), (0, f"stepscope {stepscope.__version__}")
        )
        usage = self.run_command("no-such-command", "--x")
        self.assertEqual(usage.returncode, 2)
        missing = self.run_command("info", "/no/such/path")
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("/no/such/path", missing.stderr)

    def test_command_reads_a_recording(self):
        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder):
                for n in range(5):
                    with stepscope.StepTrace("train", step_num=n):
                        pass
            info = self.run_command("info", folder)
            steps = self.run_command("report", folder, "steps")
        self.assertEqual(info.returncode, 0, info.stderr)
        self.assertIn("Python", info.stdout)
        self.assertEqual(steps.returncode, 0, steps.stderr)

    def test_console_script_is_installed(self):
        script = Path(sys.executable).with_name("stepscope")
        if not script.exists():
            self.skipTest("the package is not installed, only on the path")
        done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_command_serves_the_viewer_until_ctrl_c(self):
        import signal
        import urllib.request

        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder):
                pass
            server = subprocess.Popen(
                [sys.executable, "-m", "stepscope", "view", folder, "--port", "0"],
                stdout=subprocess.PIPE,
                text=True,
            )
            with server, contextlib.ExitStack() as whatever:
                # Were it left alive, the end of this block would wait for it for ever.
                whatever.callback(server.kill)
                for line in server.stdout:
                    if line.startswith("stepscope at "):
                        break
                address = line.split()[2]
                with urllib.request.urlopen(address + "api/v1/runs") as answer:
                    self.assertEqual(answer.status, 200)
                with urllib.request.urlopen(address) as answer:
                    page = answer.read().decode()
                # Node.js builds the viewer, also for `pip install .`.
                self.assertIn('id="app"' if shutil.which("npm") else "<title>stepscope", page)
                server.send_signal(signal.SIGINT)
                self.assertIn(server.wait(60), (0, 130, -signal.SIGINT))


@unittest.skipUnless(PEERS, "STEPSCOPE_PEERS_PYTHON names no Python with jax")
class Peers(unittest.TestCase):
    def test_jax_reads_our_files(self):
        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder) as recording:
                with stepscope.StepTrace("train", step_num=3), stepscope.Trace("forward", rows=32):
                    shutil.which("x")
            seen = subprocess.run(
                [PEERS, "-c", READ_WITH_JAX, str(recording.report.path)],
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual(seen.returncode, 0, seen.stderr)


READ_WITH_JAX = """
import sys
from jax.profiler import ProfileData
planes = {plane.name: plane for plane in ProfileData.from_file(sys.argv[1]).planes}
assert "Task Environment" in planes, planes
events = [event for line in planes["/host:CPU"].lines for event in line.events]
train, = [event for event in events if event.name == "train"]
assert dict(train.stats)["step_num"] == 3, dict(train.stats)
forward, = [event for event in events if event.name == "forward"]
assert dict(forward.stats)["rows"] == 32, dict(forward.stats)
assert train.start_ns <= forward.start_ns and forward.end_ns <= train.end_ns
calls = [event.name for event in events if event.name.startswith("$shutil.py:")]
assert any(name.endswith(" which") for name in calls), calls
"""


if __name__ == "__main__":
    unittest.main()
