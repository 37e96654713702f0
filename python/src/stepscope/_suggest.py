"""Suggestions for unknown names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_LISTED = 40


def nearest(name: object, known: Iterable[str]) -> str:
    """Suggest the known name that is most similar, and list all known names."""
    import difflib

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    listed = ", ".join(names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}valid names: {listed}{more}" if names else "there are none"
