"""``python -m stepscope.collect_profile PORT MS``: captures from a running program."""

from __future__ import annotations

import signal
import sys
import textwrap
from typing import TYPE_CHECKING

from stepscope import _core
from stepscope._errors import OptionNameError
from stepscope._options import AdvancedConfiguration
from stepscope._suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

# The command takes these in this spelling.
_PASSED_THROUGH = (
    "device_tracer_level",
    "host",
    "host_tracer_level",
    "log_dir",
    "no_perfetto_link",
    "python_tracer_level",
)

_LINK = frozenset({"--perfetto", "--no-perfetto-link", "--no_perfetto_link"})


def arguments(given: Sequence[str]) -> list[str]:
    """
    Translate arguments of ``python -m jax.collect_profile``.

    There, every other option is one of the profiler: ``--tpu_trace_mode TRACE_COMPUTE``.

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
        if not word.startswith("--") or name in _PASSED_THROUGH or "_" not in name:
            made.append(word)
            continue
        if not equals and rest:
            value = rest.pop(0)
        if name == "python_sampling_hz":
            made += ["--python-sampling-hz", value]
        elif name in AdvancedConfiguration.KEYS:
            made += ["--option", f"{name}={value}"]
        else:
            known = (*_PASSED_THROUGH, *AdvancedConfiguration.KEYS)
            message = f"cannot capture: there is no option --{name}\nhelp: {nearest(name, known)}"
            raise OptionNameError(message)
    if not _LINK.intersection(made):
        # As there: the link is left out on request only.
        made.append("--perfetto")
    return made


def accepted() -> str:
    """List the options that ``stepscope capture`` does not have."""
    names = [f"--{name}" for name in (*_PASSED_THROUGH, "python_sampling_hz", *AdvancedConfiguration.KEYS)]
    text = textwrap.fill(" ".join(dict.fromkeys(names)), 90, break_on_hyphens=False)
    return (
        "\nIn place of `stepscope capture` stands `python -m stepscope.collect_profile`; --perfetto is the\n"
        "default. JAX's names are taken too, and options of its profilers:\n" + textwrap.indent(text, "  ")
    )


def main() -> int:
    """Run ``stepscope capture`` with the arguments of ``python -m jax.collect_profile``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        given = arguments(sys.argv[1:])
    except OptionNameError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    code = _core.run_command(["stepscope", "capture", *given])
    if {"-h", "--help"}.intersection(given):
        print(accepted())
    return code


if __name__ == "__main__":
    sys.exit(main())
