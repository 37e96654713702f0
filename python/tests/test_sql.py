import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import stepscope
from stepscope.reading._sql_engine import installed_engine

ROOT = Path(__file__).parents[2]
ENGINE = os.environ.get("STEPSCOPE_SQL") or str(ROOT / "sql/target/debug/stepscope-sql")
HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None


def write_trace(path, names):
    place = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op"}
    events = [{**place, "ts": 10 * n, "dur": 5, "name": name} for n, name in enumerate(names)]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events}))
    return path


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = write_trace(self.folder / "a.json", ["load", "mm", "mm"])

    def environment(self, **changes):
        patch = mock.patch.dict(os.environ, changes)
        patch.start()
        self.addCleanup(patch.stop)


class WithoutEngine(Folder):
    def setUp(self):
        super().setUp()
        self.environment(STEPSCOPE_SQL="/nowhere/stepscope-sql")

    def test_error_says_how_to_get_the_engine(self):
        # In a process of its own: this one may keep an engine of another test.
        program = "import stepscope, sys; stepscope.sql(sys.argv[1], 'SELECT 1', format='rows')"
        arguments = [sys.executable, "-c", program, str(self.path)]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        self.assertRegex(ended.stderr, "(?s)QueryError: .*/nowhere/stepscope-sql.*help: build it with")

    def test_unknown_format_names_the_nearest(self):
        with self.assertRaisesRegex(stepscope.QueryError, "(?s)cannot give rows as 'row'\nhelp: .*rows"):
            stepscope.sql(self.path, "SELECT 1", format="row")

    def test_arrow_without_pyarrow_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {"pyarrow": None}):
            with self.assertRaisesRegex(ModuleNotFoundError, "pip install pyarrow"):
                stepscope.sql(self.path, "SELECT 1")

    def test_a_path_without_a_trace_is_an_error(self):
        with self.assertRaises(stepscope.TraceNotFoundError):
            stepscope.sql(self.folder / "none", "SELECT 1", format="rows")
        with self.assertRaisesRegex(stepscope.QueryError, "no run is named"):
            stepscope.sql([], "SELECT 1", format="rows")


class InstalledEngine(Folder):
    """The engine as pip installs it, in an environment that is not active."""

    def setUp(self):
        super().setUp()
        self.environment(STEPSCOPE_SQL="")
        self.site = self.folder / "site"
        self.program = self.folder / "bin/stepscope-sql"
        for path, text in (
            (self.site / "stepscope_sql-0.1.0.dist-info/METADATA", "Name: stepscope-sql\nVersion: 0.1.0\n"),
            (self.site / "stepscope_sql-0.1.0.dist-info/RECORD", "../bin/stepscope-sql,,\n"),
            (self.program, "#!/bin/sh\nexit 3\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.program.chmod(0o755)
        path = mock.patch.object(sys, "path", [str(self.site), *sys.path])
        path.start()
        self.addCleanup(path.stop)

    def test_program_of_the_package_is_found(self):
        self.assertEqual(Path(installed_engine()).resolve(), self.program.resolve())

    def test_variable_goes_before_the_package(self):
        self.environment(STEPSCOPE_SQL="/another/stepscope-sql")
        self.assertIsNone(installed_engine())

    def test_package_without_its_program_is_ignored(self):
        self.program.unlink()
        self.assertIsNone(installed_engine())

    def test_queries_start_the_program_of_the_package(self):
        program = "import stepscope, sys; stepscope.sql(sys.argv[1], 'SELECT 1', format='rows')"
        for arguments in (
            ["-c", program, str(self.path)],
            ["-m", "stepscope", "query", str(self.path), "SELECT 1"],
        ):
            with self.subTest(arguments=arguments):
                ended = subprocess.run(
                    [sys.executable, *arguments],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                    env={**os.environ, "PYTHONPATH": str(self.site)},
                )
                self.assertRegex(ended.stderr, "cannot start the SQL engine .*/bin/stepscope-sql: ")


@unittest.skipUnless(Path(ENGINE).exists(), f"the SQL engine is not built: {ENGINE}")
class WithEngine(Folder):
    def setUp(self):
        super().setUp()
        self.environment(STEPSCOPE_SQL=ENGINE)
        try:
            self.rows("SELECT 1", self.path)
        except stepscope.QueryError as error:
            if "of another version" in str(error):
                self.skipTest(f"the SQL engine is of another version: {ENGINE}")
            raise

    def rows(self, query, *sources, **options):
        return stepscope.sql(list(sources), query, format="rows", use_cache=False, **options)

    def test_rows_are_dictionaries(self):
        run = stepscope.open(self.path, use_cache=False).run
        self.assertEqual(
            run.sql("SELECT name, count(*) AS n FROM slices GROUP BY name ORDER BY name", format="rows"),
            [{"name": "load", "n": 1}, {"name": "mm", "n": 2}],
        )
        more = "(?s)more rows: these are the first 2\nhelp: "
        with self.assertWarnsRegex(stepscope.StepscopeWarning, more):
            self.assertEqual(len(run.sql("SELECT * FROM slices", format="rows", rows=2)), 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(len(run.sql("SELECT * FROM slices", format="rows", rows=3)), 3)

    def test_runs_are_distinguished(self):
        other = write_trace(self.folder / "b.json", ["mm"])
        same_name = write_trace(self.folder / "c/a.json", ["mm", "mm", "mm", "mm"])
        query = "SELECT run, count(*) AS n FROM slices GROUP BY run ORDER BY n"
        rows = self.rows(query, self.path, stepscope.open(other, use_cache=False).run)
        self.assertEqual(rows, [{"run": "b.json", "n": 1}, {"run": "a.json", "n": 3}])
        rows = self.rows(query, self.path, same_name)
        self.assertEqual([row["run"] for row in rows], [str(self.path), str(same_name)])
        # Other runs of the folder are not read.
        run = stepscope.open(self.folder, use_cache=False).find("b.json")
        self.assertEqual(run.sql("SELECT count(*) AS n FROM runs", format="rows"), [{"n": 1}])

    def test_wrong_and_endless_queries_are_errors_and_the_next_one_is_answered(self):
        for query, options, cause in (
            ("SELECT nothing FROM slices", {}, "No field named"),
            ("DROP TABLE slices", {}, "(?s)help: queries read"),
            ("SELECT count(*) FROM generate_series(1, 1000000000000)", {"timeout_s": 0.2}, "longer than"),
        ):
            with self.assertRaisesRegex(stepscope.QueryError, cause):
                self.rows(query, self.path, **options)
            self.assertEqual(self.rows("SELECT 1 AS one", self.path), [{"one": 1}])

    @unittest.skipUnless(HAS_PYARROW, "pyarrow is not installed")
    def test_arrow_is_a_table_with_units(self):
        import pyarrow

        table = stepscope.sql(self.path, "SELECT name, dur_ps FROM slices ORDER BY id", use_cache=False)
        self.assertIsInstance(table, pyarrow.Table)
        self.assertEqual(table.column("dur_ps").to_pylist(), [5_000_000] * 3)
        self.assertEqual(table.schema.field("dur_ps").metadata[b"unit"], b"ps")
        stream = stepscope.sql(self.path, "SELECT 1 AS one", format="ipc", use_cache=False)
        self.assertEqual(pyarrow.ipc.open_stream(stream).read_all().to_pylist(), [{"one": 1}])


if __name__ == "__main__":
    unittest.main()
