"""Queries of the SQL engine over runs that are open."""

from __future__ import annotations

import json
from typing import Any

from stepscope import _core
from stepscope._errors import QueryError, warn
from stepscope._optional_import import needed
from stepscope._suggest import nearest
from stepscope.reading._sql_engine import installed_engine

_ENGINE_FORMATS = {"arrow": "arrow", "ipc": "arrow", "rows": "json"}


def check_format(format: str) -> None:
    """Raise an error for an unknown format, and for one that needs a missing package."""
    if format not in _ENGINE_FORMATS:
        message = f"cannot give rows as {format!r}\nhelp: {nearest(format, list(_ENGINE_FORMATS))}"
        raise QueryError(message)
    if format == "arrow":
        needed("pyarrow", "format='arrow'")


def query_runs(
    runs: list[tuple[_core.LogDirectory, str, str]],
    query: str,
    *,
    format: str,
    rows: int | None,
    timeout_s: float,
    dataset: str | None = None,
    cluster: str | None = None,
) -> Any:
    """Answer a query over runs, each with its directory, id and name in the columns ``run``, or a dataset."""
    check_format(format)
    answer, is_truncated, problems = _core.query_sql(
        runs,
        query,
        format=_ENGINE_FORMATS[format],
        rows=rows,
        timeout_s=timeout_s,
        sql_program=installed_engine(),
        dataset=dataset,
        cluster=cluster,
    )
    for problem in problems:
        warn(f"the answer is not whole: {problem}")
    if is_truncated:
        warn(f"the answer has more rows: these are the first {rows}\nhelp: ask without 'rows' for all")
    if format == "ipc":
        return answer
    if format == "arrow":
        return needed("pyarrow.ipc", "format='arrow'").open_stream(answer).read_all()
    return json.loads(answer)["rows"]
