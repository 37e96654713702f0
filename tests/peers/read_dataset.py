"""
A dataset in other programs' readers.

    python read_dataset.py STEPSCOPE RUN FOLDER

Exports RUN into FOLDER. pyarrow, DuckDB and Polars must see the rows, the sums and the days that
`stepscope query` sees, of every column of every table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow.compute
import pyarrow.dataset

Sums = dict[str, tuple[int, float]]


def main() -> None:
    stepscope, run, folder = sys.argv[1:]
    subprocess.run([stepscope, "export", "--no-cache", "--args", "all", run, folder], check=True, stdout=subprocess.PIPE)
    tables = sorted(path.name for path in Path(folder).iterdir() if path.is_dir())
    assert {"slices", "tracks", "steps", "kernels", "ops", "collectives", "counters", "instants", "args", "runs"} <= set(
        tables
    ), tables
    rows = 0
    for table in tables:
        by_pyarrow = read_by_pyarrow(folder, table)
        for reader in (read_by_duckdb, read_by_polars):
            same(table, reader.__name__, reader(folder, table), by_pyarrow)
        same(table, "stepscope", read_by_stepscope(stepscope, run, table, by_pyarrow), by_pyarrow)
        rows += max(count for count, _ in by_pyarrow.values())
    assert rows > 10_000, rows
    compare_groups(folder)
    print(f"pyarrow {pyarrow.__version__}, DuckDB {duckdb.__version__} and Polars {polars.__version__} read {rows} rows")


def same(table: str, reader: str, found: Sums, expected: Sums) -> None:
    assert found.keys() == expected.keys(), (table, reader, found.keys() ^ expected.keys())
    for column, (count, total) in expected.items():
        assert found[column][0] == count, (table, column, reader, found[column], count)
        assert abs(found[column][1] - total) <= 1e-9 * abs(total), (table, column, reader, found[column], total)


def read_by_pyarrow(folder: str, table: str) -> Sums:
    read = pyarrow.dataset.dataset(Path(folder, table), partitioning="hive").to_table()
    sums = {}
    for name in read.column_names:
        column = read[name]
        if name == "date":
            assert all(len(day) == len("2026-11-23") for day in column.to_pylist())
            continue
        count = len(column) - column.null_count
        if pyarrow.types.is_string(column.type):
            column = pyarrow.compute.binary_length(column)
        total = pyarrow.compute.sum(pyarrow.compute.cast(column, pyarrow.float64(), safe=False)).as_py()
        sums[name] = (count, total or 0.0)
    return sums


def read_by_duckdb(folder: str, table: str) -> Sums:
    files = f"read_parquet('{folder}/{table}/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    columns = duckdb.sql(f"DESCRIBE SELECT * FROM {files}").fetchall()
    kinds = {name: kind for name, kind, *_ in columns}
    assert kinds.pop("date") == "DATE", kinds
    parts = [f"count({name}), coalesce(sum({number(name, kind == 'VARCHAR')}), 0)" for name, kind in kinds.items()]
    (row,) = duckdb.sql(f"SELECT {', '.join(parts)} FROM {files}").fetchall()
    return {name: (row[2 * at], float(row[2 * at + 1])) for at, name in enumerate(kinds)}


def number(name: str, is_text: bool) -> str:
    return f"CAST({f'octet_length(encode({name}))' if is_text else name} AS DOUBLE)"


def read_by_polars(folder: str, table: str) -> Sums:
    read = polars.scan_parquet(f"{folder}/{table}/**/*.parquet", hive_partitioning=True).collect()
    assert read.schema["date"] == polars.Date, read.schema
    sums = {}
    for column in read.drop("date"):
        values = column.str.len_bytes() if column.dtype == polars.String else column
        sums[column.name] = (len(column) - column.null_count(), float(values.cast(polars.Float64).sum() or 0))
    return sums


def read_by_stepscope(stepscope: str, run: str, table: str, like: Sums) -> Sums:
    """The runs' own tables; names and ids are those of a session, and count only."""
    texts = query(stepscope, run, f"SELECT column_name, type, unit FROM table_columns WHERE table_name = '{table}'")
    kinds = {row["column_name"]: row for row in texts}
    parts = []
    for name in like:
        kind = kinds[name]["type"]
        value = f"octet_length({name})" if kind == "TEXT" else f"CAST({name} AS INT)" if kind == "BOOLEAN" else name
        parts.append(f"count({name}) AS n_{name}, coalesce(sum(CAST({value} AS DOUBLE)), 0.0) AS sum_{name}")
    (row,) = query(stepscope, run, f"SELECT {', '.join(parts)} FROM {table}")
    differ = {name for name in like if name in {"run", "number", "path"} or kinds[name]["unit"] == "event"}
    return {name: (row[f"n_{name}"], like[name][1] if name in differ else row[f"sum_{name}"]) for name in like}


def query(stepscope: str, run: str, sql: str) -> list[dict[str, object]]:
    command = [stepscope, "query", "--no-cache", "--format", "json", run, sql]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    rows: list[dict[str, object]] = json.loads(answer)["rows"]
    return rows


def compare_groups(folder: str) -> None:
    """The same groups in all three: texts are texts, no dictionaries."""
    files = f"read_parquet('{folder}/slices/**/*.parquet', hive_partitioning = true)"
    ours = duckdb.sql(f"SELECT name, count(*), sum(dur_ps)::BIGINT FROM {files} GROUP BY name ORDER BY name").fetchall()
    frame = polars.scan_parquet(f"{folder}/slices/**/*.parquet", hive_partitioning=True)
    theirs = frame.group_by("name").agg(polars.len(), polars.col("dur_ps").sum()).sort("name").collect().rows()
    assert ours == theirs, (len(ours), len(theirs))
    table = pyarrow.dataset.dataset(Path(folder, "slices"), partitioning="hive").to_table(columns=["name", "dur_ps"])
    assert pyarrow.types.is_string(table.schema.field("name").type), table.schema
    again = table.group_by("name").aggregate([("name", "count"), ("dur_ps", "sum")]).sort_by("name").to_pylist()
    assert ours == [(row["name"], row["name_count"], row["dur_ps_sum"]) for row in again]


if __name__ == "__main__":
    main()
