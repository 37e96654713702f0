"""SQL over runs: what ``stepscope query`` answers, as Arrow or rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from stepscope import _core
from stepscope._errors import QueryError
from stepscope.reading._query import check_format, query_runs

if TYPE_CHECKING:
    import pyarrow

    from stepscope.reading._run import Run

Source: TypeAlias = "str | os.PathLike[str] | Run"
"""A run, or a path whose runs are meant."""


@overload
def sql(
    sources: Source | Sequence[Source],
    query: str,
    *,
    format: Literal["arrow"] = ...,
    rows: int | None = ...,
    timeout_s: float = ...,
    use_cache: bool = ...,
    cluster: str | None = ...,
) -> pyarrow.Table: ...
@overload
def sql(
    sources: Source | Sequence[Source],
    query: str,
    *,
    format: Literal["rows"],
    rows: int | None = ...,
    timeout_s: float = ...,
    use_cache: bool = ...,
    cluster: str | None = ...,
) -> list[dict[str, Any]]: ...
@overload
def sql(
    sources: Source | Sequence[Source],
    query: str,
    *,
    format: Literal["ipc"],
    rows: int | None = ...,
    timeout_s: float = ...,
    use_cache: bool = ...,
    cluster: str | None = ...,
) -> bytes: ...
def sql(
    sources: Source | Sequence[Source],
    query: str,
    *,
    format: str = "arrow",
    rows: int | None = None,
    timeout_s: float = 60.0,
    use_cache: bool = True,
    cluster: str | None = None,
) -> Any:
    """
    Ask runs a question in SQL.

    Needs the program ``stepscope-sql``; the error for a missing one says how to get it. The program stays
    for the next query. Tables, functions and limits: docs/reference/sql.md.

    Parameters
    ----------
    sources
        A `Run`, a path of a trace or log directory, or a list of them. All runs at a path are meant; the
        column ``run`` of each table tells them apart. Or one dataset (``stepscope export``) or its URL.
    query
        One statement.
    format
        ``arrow`` for a `pyarrow.Table`, which pandas (``.to_pandas()``) and Polars (``polars.from_arrow``)
        take, and which needs ``pip install pyarrow``. Without pyarrow: ``rows`` for a list of dictionaries,
        ``ipc`` for the bytes of an Arrow stream (``polars.read_ipc_stream``).
    rows
        Maximum number of rows; a warning says that there are more. Default: all.
    timeout_s
        Maximum time once the runs are open, seconds.
    use_cache
        Store runs that are named by a path in the user's cache directory.
    cluster
        Address of the cluster that runs the query of a dataset, ``df://HOST:PORT``: see docs/guide/fleet.md.

    Raises
    ------
    QueryError
        The query is wrong or reached a limit, the program is missing, or the format is unknown (also a
        `ValueError`).
    TraceNotFoundError
        There is no trace at a path (also a `FileNotFoundError`).
    ModuleNotFoundError
        The format is ``arrow``, and pyarrow is not installed.

    Examples
    --------
    >>> table = stepscope.sql(["base.json", "new.json"], "SELECT run, sum(dur_ps) FROM kernels GROUP BY run")
    >>> table.to_pandas()
    """
    check_format(format)
    dataset = _dataset(sources)
    if dataset is not None:
        return query_runs(
            [], query, format=format, rows=rows, timeout_s=timeout_s, dataset=dataset, cluster=cluster
        )
    if cluster is not None:
        cause = "cannot query traces on a cluster: it reads datasets"
        message = f"{cause}\nhelp: 'stepscope export' makes one of them"
        raise QueryError(message)
    runs = _runs(sources, use_cache=use_cache)
    listed = [(run._found, run.id, name) for run, name in zip(runs, _names(runs), strict=True)]
    return query_runs(listed, query, format=format, rows=rows, timeout_s=timeout_s)


def _dataset(sources: Source | Sequence[Source]) -> str | None:
    """Give the folder of the dataset, if the only source is one."""
    each = sources if isinstance(sources, (list, tuple)) else [sources]
    paths = [os.fspath(source) for source in each if isinstance(source, (str, os.PathLike))]
    datasets = [path for path in paths if _core.is_dataset(path)]
    if not datasets:
        return None
    if len(each) > 1:
        message = f"cannot query the dataset {datasets[0]} with others\nhelp: export the other runs into it"
        raise QueryError(message)
    return datasets[0]


def _runs(sources: Source | Sequence[Source], *, use_cache: bool) -> list[Run]:
    """Give the runs of all sources, in order."""
    from stepscope.read import Run, Traces

    each = [sources] if isinstance(sources, (str, os.PathLike, Run)) else list(sources)
    runs: list[Run] = []
    for source in each:
        if isinstance(source, Run):
            runs.append(source)
        else:
            runs += Traces(os.fspath(source), use_cache=use_cache, progress=False).runs
    if not runs:
        message = "cannot run the query: no run is named\nhelp: name a run or a path"
        raise QueryError(message)
    return runs


def _names(runs: list[Run]) -> list[str]:
    """Give each run its name in the column ``run``; runs of one name have their folder in front."""
    names = [run.name for run in runs]
    long = [str(run.paths[0].parent / run.name) if names.count(run.name) > 1 else run.name for run in runs]
    seen: dict[str, int] = {}
    out = []
    for name in long:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out
