"""`stepscope.neuron`: the files that come of captures, made up and real."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from concurrent import futures
from pathlib import Path
from unittest import mock

import grpc

import stepscope
from stepscope import neuron

ROOT = Path(__file__).parents[2]
START = 1_729_888_371_056_597_613


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def blob(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def number(field, value):
    return varint(field << 3) + varint(value)


def named(field, names):
    return b"".join(
        blob(field, number(1, i) + blob(2, number(1, i) + blob(2, name))) for i, name in names.items()
    )


def events_plane(name, rows):
    """A plane whose events hold the JSON of Chrome events."""
    events = b"".join(
        blob(4, number(1, 1) + blob(4, number(1, 1) + blob(5, json.dumps(row)))) for row in rows
    )
    stats = {1: "record", 2: "displayTimeUnit", 3: "neuronStartTimestampNs"}
    return (
        blob(2, name)
        + blob(3, blob(2, "nc0") + events)
        + named(4, {1: "x"})
        + named(5, stats)
        + blob(6, number(1, 2) + blob(5, "ns"))
        + blob(6, number(1, 3) + number(3, START))
    )


def table_plane(name, rows):
    """A plane whose stats are rows of operators."""
    keys = {n: f"op_{n}" for n in range(1, len(rows) + 1)} | {99: "total_time"}
    stats = b"".join(blob(6, number(1, n) + blob(5, json.dumps(row))) for n, row in enumerate(rows, 1))
    return blob(2, name) + named(5, keys) + stats + blob(6, number(1, 99) + number(3, 714))


def host_plane():
    event = number(1, 1) + number(2, 0) + number(3, 5_000_000)
    line = number(1, 7) + blob(2, "python3") + number(3, START + 1_000) + blob(4, event)
    return blob(2, "/host:CPU") + blob(3, line) + named(4, {1: "StepMarker"})


CAPTURE = "/host:Neuron-runtime:profile//8fae_0/model1/node2/plugins/neuron/17/"
DEVICE = {"name": "NeuronDevice Execution", "ph": "X", "pid": "nc0", "tid": "nrt", "ts": 10.0, "dur": 3}
OPERATOR = {
    "name": "aten__addmm_dot",
    "occurrences": 2,
    "device": 0,
    "core": 0,
    "time": 279,
}


def made_up():
    return b"".join(
        blob(1, plane)
        for plane in (
            events_plane(CAPTURE + "neuron_trace.json", [DEVICE]),
            events_plane(CAPTURE + "neuron_op_timeline.json", [DEVICE, DEVICE]),
            table_plane(CAPTURE + "neuron_hlo_op.json", [OPERATOR]),
            table_plane(CAPTURE + "neuron_framework_op.json", [OPERATOR, OPERATOR]),
            host_plane(),
        )
    )


class FakeServer(grpc.GenericRpcHandler):
    """A profiler server that answers every capture with one XSpace."""

    def __init__(self, xspace):
        self._answer = blob(8, xspace)

    def service(self, details):
        if details.method != "/tensorflow.ProfilerService/Profile":
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._answer)


class Profiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        before = Path.cwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        environment = mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        for name in ("XLA_IR_DEBUG", "XLA_HLO_DEBUG", "NEURON_PROFILE"):
            os.environ.pop(name, None)

    def served(self, xspace):
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((FakeServer(xspace),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        return port

    def profile(self, **options):
        port = self.served(made_up())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with neuron.profile(port=port, ms_duration=50, **options) as profiler:
                self.inside = dict(os.environ)
        return profiler.report, [str(warning.message) for warning in caught]

    def test_trace_runs_a_capture(self):
        os.environ["XLA_HLO_DEBUG"] = "0"
        report, warned = self.profile(profile_type="trace")
        (file,) = report.files
        self.assertRegex(
            str(file), r"^logs/plugins/neuron/\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d_\d{3}/neuron_trace\.json$"
        )
        trace = json.loads(file.read_text())
        self.assertEqual((trace["displayTimeUnit"], trace["neuronStartTimestampNs"]), ("ns", START))
        self.assertEqual(
            [(row["pid"], row["name"], row["ts"]) for row in trace["traceEvents"]],
            [("/host:CPU", "StepMarker", 1.0), ("nc0", "NeuronDevice Execution", 10.0)],
        )
        self.assertEqual((report.host_rows, report.device_rows), (1, 6))
        # Whose server it is gets said, and nothing else.
        self.assertEqual(len(warned), 1)
        self.assertIn("served already", warned[0])
        self.assertEqual(self.inside["NEURON_PROFILE"], "profile/")
        self.assertEqual(self.inside["NEURON_PROFILE_TYPE"], "high_level")
        self.assertNotIn("NEURON_PROFILE_NO_DELETE", self.inside)
        self.assertEqual((self.inside["XLA_IR_DEBUG"], self.inside["XLA_HLO_DEBUG"]), ("1", "1"))
        self.assertEqual((os.environ.get("XLA_IR_DEBUG"), os.environ["XLA_HLO_DEBUG"]), (None, "0"))
        self.assertFalse((self.folder / "temp_profiler_logs").exists())
        # The reader of Chrome traces takes it.
        (run,) = stepscope.open("logs").runs
        self.assertIn("NEURON", run.kinds)

    def test_operator_profile_has_its_files(self):
        report, _ = self.profile(profile_type="operator", delete_working=False)
        (folder,) = report.folders
        self.assertRegex(folder.name, r"^\d{4}(_\d\d){5}_\d{3}_8fae_0_model1_node2$")
        self.assertEqual(
            sorted(path.name for path in folder.iterdir()),
            ["neuron_framework_op.json", "neuron_hlo_op.json", "neuron_op_timeline.json"],
        )
        table = json.loads((folder / "neuron_framework_op.json").read_text())
        self.assertEqual(table, {"op_1": OPERATOR, "op_2": OPERATOR, "total_time": 714})
        self.assertEqual(len(json.loads((folder / "neuron_op_timeline.json").read_text())["traceEvents"]), 2)
        self.assertEqual(self.inside["NEURON_PROFILE_TYPE"], "low_level")
        self.assertEqual(self.inside["NEURON_PROFILE_NO_DELETE"], "1")
        self.assertEqual(report.xspace.read_bytes(), made_up())

    def test_failing_block_and_missing_server_are_reported(self):
        with self.assertWarnsRegex(stepscope.StepscopeWarning, "nothing was captured"):
            with self.assertRaises(ZeroDivisionError):
                with mock.patch.object(
                    neuron._remote, "start_server", side_effect=stepscope.ServerError("busy")
                ):
                    with neuron.profile(port=1):
                        1 / 0
        self.assertNotIn("XLA_IR_DEBUG", os.environ)

    def test_unusable_port_is_reported(self):
        error = stepscope.ServerError("cannot listen on 127.0.0.1:1: Permission denied")
        with (
            self.assertWarnsRegex(stepscope.StepscopeWarning, "port 1 cannot be used .*Permission denied"),
            mock.patch.object(neuron._remote, "start_server", side_effect=error),
            neuron.profile(port=1),
        ):
            pass

    def test_capture_can_be_started_by_hand(self):
        port = self.served(made_up())
        with self.assertWarnsRegex(stepscope.StepscopeWarning, "served already"):
            with neuron.profile(port=port, profile_type="trace", auto_start=False) as profiler:
                profiler.start()
                with self.assertRaises(RuntimeError):
                    profiler.start()
        self.assertEqual(len(profiler.report.files), 1)
        with self.assertWarnsRegex(stepscope.StepscopeWarning, "was not called"):
            with neuron.profile(port=port, auto_start=False) as profiler:
                pass
        self.assertEqual(profiler.report.files, ())

    def test_traced_models_are_profiled(self):
        left = self.folder / "profile"
        left.mkdir()
        tools = self.folder / "tools"
        tools.mkdir()
        with self.assertWarnsRegex(stepscope.StepscopeWarning, "no .neff and .ntff files"):
            with neuron.profile(traced_only=True):
                pass

        def block():
            with neuron.profile(traced_only=True, delete_working=False) as profiler:
                (left / "model.neff").write_bytes(b"program")
                (left / "model.ntff").write_bytes(b"profile")
            return profiler.report

        os.environ["PATH"] = str(tools)
        with self.assertWarnsRegex(stepscope.StepscopeWarning, "neuron-explorer view -n profile/model.neff"):
            self.assertEqual(block().files, ())
        tool = tools / "neuron-explorer"
        tool.write_text(
            f"#!{sys.executable}\nimport sys\n"
            "open(sys.argv[sys.argv.index('--output-file') + 1], 'w').write(' '.join(sys.argv[1:]))\n"
        )
        tool.chmod(0o755)
        (file,) = block().files
        self.assertTrue(file.parent.name.endswith("_model"), file)
        self.assertTrue(
            file.read_text().startswith(
                "view -n profile/model.neff -s profile/model.ntff --output-format perfetto"
            )
        )

    def test_misplaced_arguments_are_errors_with_advice(self):
        with self.assertRaisesRegex(ValueError, "NEURON_RT_INSPECT_ENABLE"):
            neuron.profile(profile_type="system")
        with self.assertRaisesRegex(ValueError, "did you mean 'operator'"):
            neuron.profile(profile_type="operators")
        with self.assertRaisesRegex(AttributeError, "NEURON_RT_INSPECT_SYS_TRACE_MAX_EVENTS_PER_NC"):
            neuron.profile(max_events_per_nc=5)
        with self.assertRaisesRegex(AttributeError, "did you mean 'ms_duration'"):
            neuron.profile(ms_durations=5)
        with self.assertRaises(ValueError):
            neuron.profile(ms_duration=0)


class RealProgram(unittest.TestCase):
    def test_example_runs_without_neuron(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(ROOT / "examples/neuron_mlp/demo.py"), "trace", "0"],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                env={**os.environ, "PJRT_DEVICE": "CPU"},
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("no rows of Neuron devices were found", done.stderr)
            (path,) = Path(folder).glob("logs/plugins/neuron/*/neuron_trace.json")
            names = [row["name"] for row in json.loads(path.read_text())["traceEvents"]]
        for label in ("model_build", "loss_backward", "optimizer_step"):
            self.assertEqual(names.count(label), 10, label)
        self.assertTrue(any(name.startswith("PjRtComputationClient::Execute") for name in names))


if __name__ == "__main__":
    unittest.main()
