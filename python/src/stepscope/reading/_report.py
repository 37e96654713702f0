"""Reports: the answers that the command line and the viewer give, as objects."""

from __future__ import annotations

import html
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MAX_HTML_ROWS = 100


class Table(Sequence[Mapping[str, Any]]):
    """
    Rows of a report: a sequence of dictionaries, also column by column.

    Attributes
    ----------
    columns
        Of each column: ``key``, ``title`` and ``unit``. Keys wear their units (``total_ns``). One with
        ``short_of`` has the short names of C++ functions in the column of that key.
    left_out
        Rows beyond the requested number.
    """

    def __init__(
        self, columns: list[dict[str, str]], rows: list[dict[str, Any]], left_out: int, title: str = ""
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.left_out = left_out
        self.title = title

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """
        Give all values of each column, by its key.

        ``pandas.DataFrame`` and ``pyarrow.table`` take it as it is.
        """
        return {column["key"]: [row.get(column["key"]) for row in self.rows] for column in self.columns}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        # Small tables with values of any type: programs that read Arrow have pyarrow.
        table = importlib.import_module("pyarrow").table(self.to_dict())
        stream: object = table.__arrow_c_stream__(requested_schema)
        return stream

    def _repr_html_(self) -> str:
        # People read short names in the place of whole ones.
        short = {column["short_of"]: column["key"] for column in self.columns if "short_of" in column}
        columns = [column for column in self.columns if "short_of" not in column]
        keys = [short.get(column["key"], column["key"]) for column in columns]
        head = "".join(f"<th>{html.escape(column['title'])}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(row.get(key))}</td>" for key in keys) + "</tr>"
            for row in self.rows[:_MAX_HTML_ROWS]
        )
        more = self.left_out + max(len(self.rows) - _MAX_HTML_ROWS, 0)
        rest = f"<p>{more} more</p>" if more else ""
        title = f"<h4>{html.escape(self.title)}</h4>" if self.title else ""
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


class Report:
    """
    The answer to one question about a run. ``print(report)`` is what ``stepscope report`` prints.

    Attributes
    ----------
    kind
        Which report it is.
    sentence
        The answer in one sentence.
    sentence_parts
        The same in parts: dictionaries with ``text``, and with ``value``, ``unit`` and ``link`` where the
        text is a value (``docs/reference/reports.md``).
    summary
        The figures behind it; keys wear their units.
    table
        The rows, a `Table`; `rows` and `columns` are its.
    sections
        Further tables, by name.
    notes
        What a reader of the figures must know.
    note_parts
        The same in parts, as in ``sentence_parts``.
    missing
        None, or why there is nothing to report (``reason``) and what would record it (``fix``).
    text
        The report as another profiler prints it, where that is the point of it; else None.
    """

    def __init__(self, answer: str, printed: str) -> None:
        self._answer: dict[str, Any] = json.loads(answer)
        self._printed = printed
        found = self._answer
        self.kind: str = found["report"]
        self.sentence_parts: list[dict[str, Any]] = found["sentence"]
        self.sentence: str = _plain(found["sentence"])
        self.summary: dict[str, Any] = found["summary"]
        self.table = _table(found, "")
        self.sections: dict[str, Table] = {
            section["name"]: _table(section, section["title"]) for section in found["sections"]
        }
        self.note_parts: list[list[dict[str, Any]]] = found["notes"]
        self.notes: tuple[str, ...] = tuple(_plain(note) for note in found["notes"])
        self.missing: dict[str, str] | None = found["missing"]
        self.text: str | None = found.get("text")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, as dictionaries."""
        return self.table.rows

    @property
    def columns(self) -> list[dict[str, str]]:
        """Of each column of the rows: key, title, unit."""
        return self.table.columns

    def to_dict(self) -> dict[str, Any]:
        """Everything, as the HTTP interface and ``--format json`` give it."""
        return self._answer

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __str__(self) -> str:
        return self._printed

    def __repr__(self) -> str:
        return f"<Report {self.kind!r}: {self.sentence}>"

    def _repr_html_(self) -> str:
        tables = [self.table, *self.sections.values()]
        figures = ", ".join(
            f"{html.escape(key)} {_cell(value)}" for key, value in self.summary.items() if value is not None
        )
        text = f"<pre>{html.escape(self.text)}</pre>" if self.text else ""
        notes = "".join(f"<p>note: {html.escape(note)}</p>" for note in self.notes)
        shown = "".join(table._repr_html_() for table in tables if len(table))
        return f"<p><b>{html.escape(self.sentence)}</b></p><p>{figures}</p>{text}{shown}{notes}"


def _plain(parts: list[dict[str, Any]]) -> str:
    """Join the parts of a sentence."""
    return "".join(part["text"] for part in parts)


def _table(found: dict[str, Any], title: str) -> Table:
    """Make a table whose sentences are plain text; ``to_dict`` of the report keeps their parts."""
    rows = found["rows"]
    keys = {column["key"] for column in found["columns"] if column["unit"] == "sentence"}
    if keys:
        rows = [
            {key: _plain(cell) if key in keys and cell is not None else cell for key, cell in row.items()}
            for row in rows
        ]
    return Table(found["columns"], rows, found.get("left_out", 0), title)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.6g}" if isinstance(value, float) else html.escape(str(value))
