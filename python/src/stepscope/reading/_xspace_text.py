"""Protobuf's text format of an XSpace, turned into bytes: for tests that write files by hand."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple, NoReturn

from stepscope._errors import TraceReadError


class _Field(NamedTuple):
    number: int
    # "int", "uint", "double", "text", "bytes", or the name of a message below.
    kind: str


_SCHEMA: dict[str, dict[str, _Field]] = {
    "XSpace": {
        "planes": _Field(1, "XPlane"),
        "errors": _Field(2, "text"),
        "warnings": _Field(3, "text"),
        "hostnames": _Field(4, "text"),
    },
    "XPlane": {
        "id": _Field(1, "int"),
        "name": _Field(2, "text"),
        "lines": _Field(3, "XLine"),
        "event_metadata": _Field(4, "EventMetadataEntry"),
        "stat_metadata": _Field(5, "StatMetadataEntry"),
        "stats": _Field(6, "XStat"),
    },
    "XLine": {
        "id": _Field(1, "int"),
        "name": _Field(2, "text"),
        "timestamp_ns": _Field(3, "int"),
        "events": _Field(4, "XEvent"),
        "duration_ps": _Field(9, "int"),
        "display_id": _Field(10, "int"),
        "display_name": _Field(11, "text"),
    },
    "XEvent": {
        "metadata_id": _Field(1, "int"),
        "offset_ps": _Field(2, "int"),
        "duration_ps": _Field(3, "int"),
        "stats": _Field(4, "XStat"),
        "num_occurrences": _Field(5, "int"),
    },
    "XStat": {
        "metadata_id": _Field(1, "int"),
        "double_value": _Field(2, "double"),
        "uint64_value": _Field(3, "uint"),
        "int64_value": _Field(4, "int"),
        "str_value": _Field(5, "text"),
        "bytes_value": _Field(6, "bytes"),
        "ref_value": _Field(7, "uint"),
    },
    "XEventMetadata": {
        "id": _Field(1, "int"),
        "name": _Field(2, "text"),
        "metadata": _Field(3, "bytes"),
        "display_name": _Field(4, "text"),
        "stats": _Field(5, "XStat"),
        "child_id": _Field(6, "int"),
    },
    "XStatMetadata": {
        "id": _Field(1, "int"),
        "name": _Field(2, "text"),
        "description": _Field(3, "text"),
    },
    "EventMetadataEntry": {"key": _Field(1, "int"), "value": _Field(2, "XEventMetadata")},
    "StatMetadataEntry": {"key": _Field(1, "int"), "value": _Field(2, "XStatMetadata")},
}

_TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*\s*)*(?:(?P<name>[A-Za-z_]\w*)
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf|nan))
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[{}<>\[\]:,;-])
    |(?P<end>$))""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSED_BY = {"{": "}", "<": ">"}
_MAX_DEPTH = 20


class _Reader:
    """Reads one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.kind = ""
        self.value = ""
        self.step()

    def step(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            self.fail("cannot be read")
        self._at = found.end()
        self.kind = found.lastgroup
        self.value = found.group(self.kind)

    def fail(self, reason: str) -> NoReturn:
        before = self._text[: self._at]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"cannot read the text of an XSpace: line {line}, column {column}: {reason}"
        raise TraceReadError(message)

    def take(self, *signs: str) -> bool:
        if self.kind == "sign" and self.value in signs:
            self.step()
            return True
        return False

    def message(self, kind: str, end: str, depth: int) -> bytes:
        """Everything up to ``end``, which is taken."""
        if depth > _MAX_DEPTH:
            self.fail("messages are nested too deep")
        fields = _SCHEMA[kind]
        out = bytearray()
        while not self._ends(end):
            if self.kind != "name":
                self.fail(f"a field's name was expected, not {self.value!r}")
            field = fields.get(self.value)
            if field is None:
                self.fail(f"{kind} has no field {self.value!r}; it has {', '.join(fields)}")
            self.step()
            has_colon = self.take(":")
            if self.take("["):
                while not self.take("]"):
                    out += self._value(field, depth, has_colon=True)
                    self.take(",")
            else:
                out += self._value(field, depth, has_colon=has_colon)
            self.take(",", ";")
        return bytes(out)

    def _ends(self, end: str) -> bool:
        if not end:
            return self.kind == "end"
        if self.kind == "end":
            self.fail(f"{end!r} is missing")
        return self.take(end)

    def _value(self, field: _Field, depth: int, *, has_colon: bool) -> bytes:
        if field.kind in _SCHEMA:
            opened = self.value
            if not self.take("{", "<"):
                self.fail("a message was expected")
            return _delimited(field.number, self.message(field.kind, _CLOSED_BY[opened], depth + 1))
        if not has_colon:
            self.fail("':' is missing")
        if field.kind in ("text", "bytes"):
            return _delimited(field.number, self._texts(text=field.kind == "text"))
        number = self._number()
        if field.kind == "double":
            return _varint(field.number << 3 | 1) + struct.pack("<d", float(number))
        if isinstance(number, float):
            self.fail("a whole number was expected")
        low, high = (0, 2**64) if field.kind == "uint" else (-(2**63), 2**63)
        if not low <= number < high:
            self.fail(f"{number} does not fit")
        return _varint(field.number << 3) + _varint(number & (2**64 - 1))

    def _texts(self, *, text: bool) -> bytes:
        if self.kind != "text":
            self.fail("a text was expected")
        out = b""
        while self.kind == "text":
            out += _ESCAPE.sub(_unescaped, self.value[1:-1].encode())
            self.step()
        if text:
            try:
                out.decode()
            except UnicodeDecodeError:
                self.fail("the text is not UTF-8")
        return out

    def _number(self) -> int | float:
        negative = self.take("-")
        word = self.value
        if self.kind == "name" and word in ("inf", "infinity", "nan"):
            number: int | float = float(word)
        elif self.kind == "number":
            number = (
                int(word, 0) if re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|[1-9]\d*|0)", word) else float(word)
            )
        else:
            self.fail("a number was expected")
        self.step()
        return -number if negative else number


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, other = found.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 255])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return _ESCAPED.get(other, bytes(other))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _delimited(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def serialized(text: str) -> bytes:
    """
    Turn the text into the bytes of a file.

    Raises
    ------
    TraceReadError
        The text does not describe an XSpace; the message names line and column.
    """
    return _Reader(text).message("XSpace", "", 0)
