import gzip
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import stepscope
from stepscope import fleet

ROOT = Path(__file__).parents[2]
ENGINE = os.environ.get("STEPSCOPE_SQL") or str(ROOT / "sql/target/debug/stepscope-sql")


def write_session(logs, name, steps):
    """Write a session with as many steps of 10 us."""
    events = [
        {
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": 100 + 10 * step,
            "dur": 10,
        }
        for step in range(steps)
    ]
    folder = logs / "plugins" / "profile" / name
    folder.mkdir(parents=True)
    content = {"schemaVersion": 1, "baseTimeNanoseconds": 1_793_577_600_000_000_000, "traceEvents": events}
    (folder / "node-0.trace.json").write_text(json.dumps(content))


def contents(folder):
    """Read the files of a dataset, by name."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Fleet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = Path(folder.name) / "logs"
        self.dataset = Path(folder.name) / "dataset"
        write_session(self.logs, "2026_11_02_00_00_00", 5)
        write_session(self.logs, "2026_11_02_01_00_00", 50)
        patch = mock.patch.dict(os.environ, STEPSCOPE_SQL=ENGINE, XDG_CACHE_HOME=folder.name)
        patch.start()
        self.addCleanup(patch.stop)


class Tasks(Fleet):
    def test_largest_run_comes_first_with_the_path_that_names_it(self):
        tasks = fleet.runs(self.logs)
        self.assertEqual({task["path"] for task in tasks}, {str(self.logs)})
        self.assertTrue(tasks[0]["run"].endswith("2026_11_02_01_00_00"), tasks)
        self.assertGreater(tasks[0]["bytes"], tasks[1]["bytes"])
        json.dumps(tasks)

    def test_urls_stay_as_they_are(self):
        url = "s3://bucket/logs"
        with mock.patch.object(fleet._core, "run_files", return_value=[("a", 0, 5), ("a", 1, 9)]) as listed:
            tasks = fleet.files(url)
        listed.assert_called_once_with(url)
        self.assertEqual([(task["path"], task["file"]) for task in tasks], [(url, 1), (url, 0)])
        ended = subprocess.CompletedProcess([], 0, "", "")
        with mock.patch.object(fleet, "_command", return_value=ended) as command:
            self.assertEqual(fleet.join(url, self.dataset), [])
        self.assertEqual(command.call_args.args[0][1], url)

    def test_failure_is_in_the_receipt(self):
        task = {"path": str(self.logs / "none"), "run": "x", "bytes": 0}
        receipt = fleet.export(task, self.dataset)
        self.assertEqual(receipt["state"], "failed")
        self.assertIn("no such file or directory", receipt["error"])

    def test_engine_that_the_system_ends_is_an_error(self):
        engine = self.logs.parent / "killed"
        engine.write_text("#!/bin/sh\nkill -9 $$\n")
        engine.chmod(0o755)
        with mock.patch.dict(os.environ, STEPSCOPE_SQL=str(engine)):
            receipt = fleet.export(fleet.runs(self.logs)[0], self.dataset)
        self.assertEqual(receipt["state"], "failed")
        self.assertIn("signal 9", receipt["error"])

    def test_failure_without_a_message_has_an_error(self):
        ended = subprocess.CompletedProcess([], -9, "", "")
        with mock.patch.object(fleet, "_command", return_value=ended):
            receipt = fleet.export(fleet.runs(self.logs)[0], self.dataset)
        self.assertEqual(receipt["state"], "failed")
        self.assertIn("cannot export", receipt["error"])

    def test_folder_that_is_no_dataset_is_an_error(self):
        with self.assertRaisesRegex(stepscope.QueryError, "(?s)it is no dataset.*help: 'stepscope export"):
            fleet.report(self.logs, "hosts")


@unittest.skipUnless(Path(ENGINE).exists(), f"the SQL engine is not built: {ENGINE}")
class WithEngine(Fleet):
    def test_tasks_make_a_dataset_that_reports_and_queries_read(self):
        tasks = fleet.runs(self.logs)
        receipts = [fleet.export(task, self.dataset) for task in tasks]
        if any("of another version" in receipt["error"] for receipt in receipts):
            self.skipTest(f"the SQL engine is of another version: {ENGINE}")
        self.assertEqual([receipt["state"] for receipt in receipts], ["exported"] * 2, receipts)
        self.assertEqual([receipt["slices"] for receipt in receipts], [50, 5])
        # The bytes do not depend on which tasks write them, nor in which order.
        backwards = self.dataset.with_name("backwards")
        for task in reversed(tasks):
            fleet.export(task, backwards)
        self.assertEqual(contents(backwards), contents(self.dataset))
        again = fleet.export(tasks[0], self.dataset)
        self.assertEqual(again["state"], "present")
        steps = fleet.report(self.dataset, "steps", since="2026-11-01", until="2026-11-30")
        self.assertEqual(steps["summary"]["steps"], 55)
        rows = stepscope.sql(self.dataset, "SELECT count(*) AS n FROM steps", format="rows")
        self.assertEqual(rows, [{"n": 55}])
        with self.assertRaisesRegex(stepscope.QueryError, "with others"):
            stepscope.sql([self.dataset, self.logs], "SELECT 1", format="rows")
        with self.assertRaisesRegex(stepscope.QueryError, "no run of the dataset is in this range"):
            fleet.report(self.dataset, "runs", since="2027-01-01")
        # Nothing listens there: the address has reached the engine.
        nowhere = "df://127.0.0.1:1"
        for ask in (
            lambda: stepscope.sql(self.dataset, "SELECT 1 AS n", format="rows", cluster=nowhere),
            lambda: fleet.report(self.dataset, "hosts", cluster=nowhere),
        ):
            with self.assertRaisesRegex(stepscope.QueryError, f"the cluster {nowhere} cannot be reached"):
                ask()
        with self.assertRaisesRegex(stepscope.QueryError, "it reads datasets"):
            stepscope.sql(self.logs, "SELECT 1", format="rows", cluster=nowhere)

    def test_files_of_a_run_are_tasks_and_join_makes_the_run(self):
        session = self.logs / "plugins" / "profile" / "2026_11_02_01_00_00"
        first = session / "node-0.trace.json"
        (session / "node-1.trace.json").write_bytes(first.read_bytes())
        tasks = fleet.files(self.logs)
        self.assertEqual(sorted(task["file"] for task in tasks), [0, 0, 1])
        json.dumps(tasks)
        with_two = [task for task in tasks if task["run"].endswith("01_00_00")]
        receipt = fleet.export(with_two[0], self.dataset)
        if "of another version" in receipt["error"]:
            self.skipTest(f"the SQL engine is of another version: {ENGINE}")
        self.assertEqual((receipt["state"], receipt["slices"]), ("exported", 50), receipt)
        self.assertEqual(receipt["file"], with_two[0]["file"])
        with self.assertRaisesRegex(stepscope.QueryError, "1 of 2 files are not exported"):
            fleet.join(self.logs, self.dataset)
        for task in tasks:
            fleet.export(task, self.dataset)
        self.assertEqual(fleet.join(self.logs, self.dataset), ["2026_11_02_01_00_00"])
        self.assertEqual(fleet.join(self.logs, self.dataset), [])
        sql = "SELECT name, slices, hosts FROM runs ORDER BY slices"
        rows = stepscope.sql(self.dataset, sql, format="rows")
        self.assertEqual([(row["slices"], row["hosts"]) for row in rows], [(5, 1), (100, 2)])

    def test_truncated_file_is_exported_and_has_an_error(self):
        session = self.logs / "plugins" / "profile" / "2026_11_02_01_00_00"
        whole = session / "node-0.trace.json"
        compressed = gzip.compress(whole.read_bytes())
        whole.unlink()
        (session / "node-0.trace.json.gz").write_bytes(compressed[:-20])
        (task,) = (task for task in fleet.runs(self.logs) if task["run"].endswith("01_00_00"))
        receipt = fleet.export(task, self.dataset)
        if "of another version" in receipt["error"]:
            self.skipTest(f"the SQL engine is of another version: {ENGINE}")
        self.assertEqual(receipt["state"], "exported", receipt)
        self.assertGreater(receipt["slices"], 0)
        self.assertIn("gzip ends early", receipt["error"])


if __name__ == "__main__":
    unittest.main()
