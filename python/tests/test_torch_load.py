"""`stepscope.torch` where there is no torch: tables from files."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import stepscope.torch
from stepscope import TraceNotFoundError

TRACE = {
    "schemaVersion": 1,
    "record_shapes": 1,
    "baseTimeNanoseconds": 1_790_857_026_000_000_000,
    "traceEvents": [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#3",
            "pid": 1,
            "tid": 1,
            "ts": 100.0,
            "dur": 100.0,
            "args": {"External id": 1, "Ev Idx": 0},
        },
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::linear",
            "pid": 1,
            "tid": 1,
            "ts": 110.5,
            "dur": 40.25,
            "args": {"External id": 2, "Ev Idx": 1, "Input Dims": [[2, 3], [4, 3]]},
        },
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": 1,
            "tid": 1,
            "ts": 120.0,
            "dur": 20.0,
            "args": {"External id": 3, "Ev Idx": 2, "Input Dims": [[2, 3], [3, 4]]},
        },
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 125.0,
            "dur": 5.0,
            "args": {"External id": 3, "correlation": 70},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm",
            "pid": 0,
            "tid": 7,
            "ts": 150.0,
            "dur": 30.0,
            "args": {"External id": 3, "correlation": 70, "device": 0, "stream": 7},
        },
    ],
}

ROW = (
    "       ProfilerStep*        59.75%      59.750us       100.00%     100.000us     100.000us       0.000us"
    "         0.00%      30.000us      30.000us             1  "
)


class Load(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name, "trace.json")
        self.path.write_text(json.dumps(TRACE))

    def rows(self, **grouping):
        return {row.key: row for row in stepscope.torch.load(self.path).key_averages(**grouping)}

    def test_figures_follow_the_rules_of_torch(self):
        rows = self.rows()
        self.assertEqual(
            list(rows), ["ProfilerStep*", "aten::linear", "aten::mm", "cudaLaunchKernel", "gemm"]
        )
        step, linear, mm, kernel = (
            rows[name] for name in ("ProfilerStep*", "aten::linear", "aten::mm", "gemm")
        )
        self.assertEqual(step.self_cpu_time_total, 59.75)
        self.assertEqual(linear.self_cpu_time_total, 20.25)
        self.assertEqual(mm.self_cpu_time_total, 15)
        self.assertEqual((mm.device_time_total, mm.self_device_time_total), (30, 30))
        self.assertEqual((step.device_time_total, step.self_device_time_total), (30, 0))
        self.assertEqual((kernel.device_type, kernel.cpu_time_total), ("CUDA", 0))
        self.assertTrue(step.is_user_annotation)
        with self.assertWarns(FutureWarning):
            self.assertEqual(mm.cuda_time_total, 30)
        self.assertEqual(mm.cpu_time_str, "20.000us")

    def test_rows_are_grouped_as_torch_groups_them(self):
        one, other = self.rows()["aten::mm"], self.rows()["aten::mm"]
        one += other
        self.assertEqual((one.count, one.cpu_time_total, one.device_time_total), (2, 40, 60))
        self.assertEqual((one.cpu_time, one.input_shapes), (20, other.input_shapes))
        self.assertIs(one.add(other), one)
        self.assertEqual(one.count, 3)
        with self.assertRaises(ValueError):
            one.add(self.rows()["gemm"])
        # All rows, operators and kernels alike.
        total = stepscope.torch.load(self.path).key_averages().total_average()
        self.assertEqual((total.key, total.count, total.self_device_time_total), ("Total", 5, 60))
        self.assertEqual((total.cpu_parent, total.cpu_children), (None, None))

    def test_input_shapes_group_rows(self):
        self.assertEqual(self.rows(group_by_input_shape=True)["aten::mm"].input_shapes, [[2, 3], [3, 4]])

    def test_table_equals_the_table_of_torch(self):
        table = stepscope.torch.load(self.path).key_averages().table(sort_by="cpu_time_total", row_limit=1)
        lines = table.splitlines()
        self.assertEqual(lines[3], ROW)
        self.assertEqual(lines[0], lines[2])
        # "CUDA time avg" is wider than its column, in torch too.
        self.assertEqual(len(lines[1]), len(lines[0]) + 1)
        self.assertEqual(lines[5:], ["Self CPU time total: 100.000us", "Self CUDA time total: 30.000us"])
        with self.assertRaises(AttributeError):
            stepscope.torch.load(self.path).key_averages().table(sort_by="nonsense")

    def test_missing_file_and_unknown_names_are_errors(self):
        with self.assertRaises(TraceNotFoundError):
            stepscope.torch.load(self.path.with_name("absent.json"))
        with self.assertRaises(ValueError):
            stepscope.torch.load(self.path).stacks("nonsense")
        with self.assertRaises(AttributeError):
            _ = stepscope.torch.nonsense

    def test_torch_is_not_imported(self):
        code = (
            "import sys, stepscope.torch\n"
            f"stepscope.torch.load({str(self.path)!r}).key_averages().table()\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
