"""A small reader of XSpace files, independent of the package: a walk over protobuf's wire format."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple


class Event(NamedTuple):
    """A slice, instant or sample; times in nanoseconds."""

    line: str
    name: str
    start_ns: float
    duration_ns: float
    stats: dict


class File(NamedTuple):
    """What a test asks of a file."""

    events: list[Event]
    stats: dict
    warnings: list[str]

    def named(self, name):
        """The events of this name."""
        return [event for event in self.events if event.name == name]

    def names(self):
        """Every name there is."""
        return {event.name for event in self.events}


def _fields(data):
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 1:
            value, at = data[at : at + 8], at + 8
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {kind} at byte {at}")
        yield number, value


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def _entry(data):
    entry = dict(_fields(data))
    message = dict(_fields(entry.get(2, b"")))
    return entry.get(1, 0), message.get(2, b"").decode()


def _stats(raw, names):
    stats = {}
    for data in raw:
        stat = dict(_fields(data))
        key = names.get(stat.pop(1, 0))
        for number, value in stat.items():
            if number == 2:
                stats[key] = struct.unpack("<d", value)[0]
            elif number == 4:
                stats[key] = _signed(value)
            elif number == 5:
                stats[key] = value.decode()
            elif number == 7:
                stats[key] = names.get(value)
            else:
                stats[key] = value
    return stats


def read(path):
    """The host plane of a file."""
    events, facts, warnings = [], {}, []
    for number, plane in _fields(Path(path).read_bytes()):
        if number == 3:
            warnings.append(plane.decode())
        if number != 1:
            continue
        parts = {}
        for field, value in _fields(plane):
            parts.setdefault(field, []).append(value)
        if parts.get(2, [b""])[0] != b"/host:CPU":
            continue
        event_names = dict(map(_entry, parts.get(4, [])))
        stat_names = dict(map(_entry, parts.get(5, [])))
        facts.update(_stats(parts.get(6, []), stat_names))
        for line in parts.get(3, []):
            _line(line, event_names, stat_names, events)
    return File(events, facts, warnings)


def _line(line, event_names, stat_names, events):
    name, base, raw = "", 0, []
    for field, value in _fields(line):
        if field == 2:
            name = value.decode()
        elif field == 3:
            base = _signed(value)
        elif field == 4:
            raw.append(value)
    for data in raw:
        ints, stats = {}, []
        for field, value in _fields(data):
            if field == 4:
                stats.append(value)
            else:
                ints[field] = value
        start = base + ints.get(2, 0) / 1000
        found = _stats(stats, stat_names)
        events.append(Event(name, event_names.get(ints.get(1, 0)), start, ints.get(3, 0) / 1000, found))
