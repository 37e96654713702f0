"""``python -m stepscope.collect_profile PORT MS``: captures from a running program."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from stepscope import _core
from stepscope._errors import OptionNameError
from stepscope._options import AdvancedConfiguration, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

# The command takes these in this spelling.
_AS_THEY_ARE = (
    "device_tracer_level",
    "host",
    "host_tracer_level",
    "log_dir",
    "no_perfetto_link",
    "python_tracer_level",
)


def arguments(given: Sequence[str]) -> list[str]:
    """
    Translate arguments of ``python -m jax.collect_profile``.

    There, what is no argument is an option of the profiler: ``--tpu_trace_mode TRACE_COMPUTE``.

    Raises
    ------
    OptionNameError
        No profiler has such an option; the message names the nearest one.
    """
    made: list[str] = []
    rest = list(given)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name in _AS_THEY_ARE or "_" not in name:
            made.append(word)
            continue
        if not equals and rest:
            value = rest.pop(0)
        if name == "python_sampling_hz":
            made += ["--python-sampling-hz", value]
        elif name in AdvancedConfiguration.KEYS:
            made += ["--option", f"{name}={value}"]
        else:
            known = (*_AS_THEY_ARE, *AdvancedConfiguration.KEYS)
            message = f"no option --{name}; {nearest(name, known)}"
            raise OptionNameError(message)
    return made


def main() -> int:
    """Run ``stepscope capture`` with the arguments of ``python -m jax.collect_profile``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        given = arguments(sys.argv[1:])
    except OptionNameError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _core.run_command(["stepscope", "capture", *given])


if __name__ == "__main__":
    sys.exit(main())
