"""
Time SQL of other engines over the tables of a dataset, in this process.

    python sql.py DATASET QUERIES.json

QUERIES.json is an array of statements over `slices`. Prints one JSON object: for each engine, `duckdb` over the Parquet
files (median of five, after one that is not timed) and `sqlite` over a table in memory (once), an array with
{"wall_s", "processor_s", "rows"} of each statement. Reading the files into SQLite is left out of its times.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow.dataset

ROUNDS = 5
COLUMNS = ["id", "track_id", "name", "start_ps", "dur_ps"]

Row = tuple[object, ...]
Ask = Callable[[str], list[Row]]


def timed(ask: Ask, sql: str, rounds: int) -> dict[str, object]:
    """Return the times and the rows of a statement."""
    walls, processors = [], []
    rows: list[Row] = []
    for _ in range(rounds):
        began, used = time.perf_counter(), sum(os.times()[:2])
        rows = ask(sql)
        walls.append(time.perf_counter() - began)
        processors.append(sum(os.times()[:2]) - used)
    texts = [["null" if cell is None else str(cell) for cell in row] for row in rows]
    return {
        "wall_s": statistics.median(walls),
        "processor_s": statistics.fmean(processors),
        "rows": texts,
    }


def open_duckdb(folder: Path) -> Ask:
    connection = duckdb.connect()
    files = str(folder / "slices" / "**" / "*.parquet")
    connection.execute(f"CREATE VIEW slices AS SELECT * FROM read_parquet('{files}')")

    def ask(sql: str) -> list[Row]:
        return connection.execute(sql).fetchall()

    return ask


def open_sqlite(folder: Path) -> Ask:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE slices ({', '.join(COLUMNS)})")

    def rows() -> Iterator[Row]:
        slices = pyarrow.dataset.dataset(folder / "slices")
        for batch in slices.to_batches(columns=COLUMNS):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    connection.executemany(f"INSERT INTO slices VALUES ({', '.join('?' * len(COLUMNS))})", rows())

    def ask(sql: str) -> list[Row]:
        return connection.execute(sql).fetchall()

    return ask


def main() -> None:
    dataset, queries = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    ask = open_duckdb(dataset)
    answers = {"duckdb": []}
    for sql in queries:
        ask(sql)
        answers["duckdb"].append(timed(ask, sql, ROUNDS))
    ask = open_sqlite(dataset)
    answers["sqlite"] = [timed(ask, sql, 1) for sql in queries]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
