"""
Work on many runs, divided into tasks: for Ray, Spark, Dask or any other scheduler.

`runs` lists the tasks, `export` does one of them and gives a receipt, `report` reads the dataset. All take
and give plain dictionaries and texts, so any scheduler can send them.
``stepscope export LOGDIR DATASET --shard I/N`` does the same without Python. Runs of many hosts divide
further: `files` lists their files, and `join` makes the tables of the runs when all files are exported.

>>> import ray
>>> from stepscope import fleet
>>> export = ray.remote(num_cpus=2)(fleet.export)
>>> receipts = ray.get([export.remote(task, "/shared/dataset") for task in fleet.runs("/shared/logs")])
>>> [receipt for receipt in receipts if receipt["state"] == "failed"]
[]
>>> fleet.report("/shared/dataset", "hosts")["rows"][0]
{'name': 'node-7', 'delay_share': 0.042, ...}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from stepscope import _core
from stepscope._errors import QueryError

__all__ = ["ExportTask", "FileTask", "Receipt", "export", "files", "join", "report", "runs"]


class ExportTask(TypedDict):
    """
    One run to export.

    Attributes
    ----------
    path
        The path or URL at which it is found.
    run
        Its id there.
    bytes
        Size of its files.
    """

    path: str
    run: str
    bytes: int


class FileTask(ExportTask):
    """
    One file of a run to export.

    Attributes
    ----------
    file
        Its number in the run, from 0.
    """

    file: int


class Receipt(TypedDict):
    """
    What became of a task.

    Attributes
    ----------
    path, run
        Those of the task.
    file
        That of the task; ``None`` for a whole run.
    state
        ``exported``, ``present`` (the dataset had it) or ``failed``.
    slices
        Number of slices, 0 unless it was exported.
    bytes
        Size of its files in the dataset, 0 unless it was exported.
    seconds
        Time that it took.
    error
        Cause if the task failed. Of a run that was exported, the files that were not read whole, such as a
        truncated gzip file. Empty otherwise. The table ``diagnostics`` has every loss of data.
    """

    path: str
    run: str
    file: int | None
    state: Literal["exported", "present", "failed"]
    slices: int
    bytes: int
    seconds: float
    error: str


def _absolute(path: str | os.PathLike[str]) -> str:
    """Give the path as every worker may take it: names of runs, and so of jobs, are relative to it."""
    source = os.fspath(path)
    return source if "://" in source else str(Path(source).absolute())


def runs(path: str | os.PathLike[str]) -> list[ExportTask]:
    """
    List the runs at a path or URL, the largest first: so the last tasks of a fleet are short ones.

    Raises
    ------
    TraceNotFoundError
        There is no trace at the path (also a `FileNotFoundError`).
    """
    from stepscope.read import Traces

    absolute = _absolute(path)
    found = Traces(absolute, use_cache=True, progress=False).runs
    tasks: list[ExportTask] = [{"path": absolute, "run": run.id, "bytes": run.size_bytes} for run in found]
    return sorted(tasks, key=lambda task: (-task["bytes"], task["run"]))


def files(path: str | os.PathLike[str]) -> list[FileTask]:
    """
    List the files of the runs at a path or URL, the largest first: tasks for runs of many hosts.

    When all are exported, `join` makes the tables of their runs.

    Raises
    ------
    TraceNotFoundError
        There is no trace at the path (also a `FileNotFoundError`).
    """
    absolute = _absolute(path)
    found = _core.run_files(absolute)
    tasks: list[FileTask] = [
        {"path": absolute, "run": run, "file": number, "bytes": size} for run, number, size in found
    ]
    return sorted(tasks, key=lambda task: (-task["bytes"], task["run"], task["file"]))


def _command(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the command of this package: what pip installs may not be on the PATH of a worker."""
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
    )


def export(task: ExportTask | FileTask, dataset: str | os.PathLike[str], *, args: str = "none") -> Receipt:
    """
    Add one run, or one file of a run, to a dataset, in a process of its own.

    A run that is in the dataset is not written again, so a task may be repeated. A failure is in the
    receipt and is not raised: one broken file does not end the work on all others.

    Parameters
    ----------
    task
        From `runs` or `files`.
    dataset
        Folder that all tasks reach.
    args
        Arguments of events: ``none``, ``all``, or the keys of some, separated by commas.
    """
    begin = time.perf_counter()
    words = ["export", task["path"], os.fspath(dataset), "--run", task["run"], "--args", args, "--json"]
    file = cast("int | None", task.get("file"))
    if file is not None:
        words += ["--by-file", "--file", str(file)]
    ended = _command(words)
    done = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    made: dict[str, Any] = done[0] if done and ended.returncode == 0 else {"state": "failed"}
    error = ended.stderr.strip()
    if made["state"] == "failed" and not error:
        # A process that the system kills prints nothing.
        error = (
            f"error: cannot export {task['run']}: the process ended with exit code {ended.returncode}, "
            "without a message\nhelp: the usual cause is too little memory: give the task more"
        )
    return {
        "path": task["path"],
        "run": task["run"],
        "file": file,
        "state": made["state"],
        "slices": made.get("slices", 0),
        "bytes": made.get("bytes", 0),
        "seconds": time.perf_counter() - begin,
        "error": error,
    }


def join(path: str | os.PathLike[str], dataset: str | os.PathLike[str]) -> list[str]:
    """
    Make the tables of the runs whose files are all exported, and list these runs.

    Clocks and collectives are compared between the files here. Runs that are joined already are left out.

    Parameters
    ----------
    path
        The path or URL that `files` listed.
    dataset
        Folder of the dataset.

    Raises
    ------
    QueryError
        Files of a run are not exported, or the program ``stepscope-sql`` is missing. Other runs are joined.
    """
    ended = _command(["export", _absolute(path), os.fspath(dataset), "--join", "--json"])
    if ended.returncode != 0:
        raise QueryError(ended.stderr.strip().removeprefix("error: "))
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return [line["run"] for line in lines if line["state"] == "exported"]


def report(
    dataset: str | os.PathLike[str],
    kind: Literal["hosts", "runs", "collectives", "steps"],
    *,
    since: str | None = None,
    until: str | None = None,
    job: str | None = None,
    top: int = 25,
    cluster: str | None = None,
) -> dict[str, Any]:
    """
    Report on a dataset, as ``stepscope fleet DATASET KIND --format json``.

    Parameters
    ----------
    dataset
        Its folder.
    kind
        ``hosts``: which host do the others wait for; ``runs``: which job became slower, from which run on;
        ``collectives``: how fast, by size and by hosts; ``steps``: what is different in the slowest 1 %.
    since, until
        First and last day, UTC, as ``2026-11-23``.
    job
        One job only.
    top
        Maximum number of rows of each table.
    cluster
        Address of the cluster that runs the queries, ``df://HOST:PORT``.

    Raises
    ------
    QueryError
        The folder is no dataset, no run is in the range, or the program ``stepscope-sql`` is missing.
    """
    words = ["fleet", os.fspath(dataset), kind, "--format", "json", "--top", str(top)]
    for option, value in (("--since", since), ("--until", until), ("--job", job), ("--cluster", cluster)):
        if value is not None:
            words += [option, value]
    ended = _command(words)
    if ended.returncode != 0:
        raise QueryError(ended.stderr.strip().removeprefix("error: "))
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer
