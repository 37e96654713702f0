"""
Labels of the actions of Lightning's trainers, which its own profilers time.

Programs of `stepscope run` import this once they have imported those profilers. The names are those of
`stepscope.lightning`. Nothing here may reach the program.
"""

from __future__ import annotations

import sys
from functools import cache, wraps
from typing import Any

from stepscope import _core
from stepscope.adapters._actions import LABEL, PACKAGES

# Profilers whose own labels are in the recording.
_LABEL_THEMSELVES = frozenset({"PyTorchProfiler", "XLAProfiler"})


@cache
def _labels_itself(profiler: type) -> bool:
    return any(base.__name__ in _LABEL_THEMSELVES for base in profiler.__mro__)


class _LabelledAction:
    """An action inside of its label."""

    __slots__ = ("_action", "_label")

    def __init__(self, action: Any, label: Any) -> None:
        self._action = action
        self._label = label

    def __enter__(self) -> Any:
        self._label.__enter__()
        return self._action.__enter__()

    def __exit__(self, *error: object) -> Any:
        try:
            return self._action.__exit__(*error)
        finally:
            self._label.__exit__(*error)


def _label_actions(profilers: Any) -> None:
    kind = profilers.Profiler
    profile = kind.profile

    @wraps(profile)
    def profile_and_label(self: Any, action_name: str) -> Any:
        action = profile(self, action_name)
        profiler: Any = type(self)
        if _labels_itself(profiler):
            return action
        return _LabelledAction(action, _core.Trace(f"{LABEL}{action_name}"))

    kind.profile = profile_and_label


for _package in PACKAGES:
    _profilers = sys.modules.get(f"{_package}.profilers.profiler")
    if _profilers is not None:
        _label_actions(_profilers)
