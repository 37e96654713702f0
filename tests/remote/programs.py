"""
Shared functions of the capture tests: programs that run during a test, and the files of a capture.

`STEPSCOPE_BIN` is the `stepscope` command, `STEPSCOPE_SERVE` our program that serves (the example `serve`
of `stepscope-remote`), `STEPSCOPE_TORCH_XLA_PYTHON` an interpreter with PyTorch/XLA. Every wait has a timeout, and
a test that hangs is ended with a stack trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A scratch log directory is a folder of this one, so that a hung program cannot fill the disk unseen.
ENVIRONMENT = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "PJRT_DEVICE": "CPU",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PYTHONUNBUFFERED": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
WHOLE_FILE_S = 1_200
# An operation that should end at once may wait for the disk (fsync), which took over a minute on a virtual disk.
WAIT_S = 120
# An interval that never ends by itself: a capture that ends sooner has been ended.
FOR_EVER_MS = 3_600_000
# An interval with many steps of some milliseconds each, even when the machine is suspended for most of it
# (a second was observed).
INTERVAL_MS = 3_000


def stepscope_binary() -> str:
    return os.environ["STEPSCOPE_BIN"]


def run_tests() -> None:
    """Run the tests of a file and print each one's name and time; end a run that hangs."""
    faulthandler.dump_traceback_later(WHOLE_FILE_S, exit=True)
    options = {"durations": 0} if sys.version_info >= (3, 12) else {}
    unittest.main(verbosity=2, **options)


def free_port() -> int:
    """Return an unused port, for programs that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what: str, condition: Callable[[], object], seconds: float = WAIT_S) -> object:
    """Waits until the condition holds and returns its value; fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            message = f"waited {seconds} s for {what}"
            raise AssertionError(message)
        time.sleep(0.01)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stepscope-capture-") as folder:
        yield Path(folder)


class Program:
    """A program that runs during the test; killed at the end of the block if it has not ended."""

    def __init__(self, arguments: list[object], environment: dict[str, str] | None = None) -> None:
        self.arguments = [str(argument) for argument in arguments]
        self.environment = environment or {}

    def __enter__(self) -> Program:
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.arguments,
            stdin=subprocess.PIPE,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=ENVIRONMENT | self.environment,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.output.close()

    @property
    def text(self) -> str:
        """Return its output so far, of both streams."""
        self.output.seek(0)
        return self.output.read()

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_for_line(self, beginning: str, seconds: float = WAIT_S) -> str:
        """Return the rest of the first line with this prefix."""

        def find() -> list[str]:
            lines = [line for line in self.text.splitlines() if line.startswith(beginning)]
            if not lines and not self.alive():
                message = f"ended with {self.process.returncode}, never printed {beginning!r}: {self.text}"
                raise AssertionError(message)
            return lines

        return wait_for(f"{beginning!r} of {self.arguments}", find, seconds)[0].removeprefix(beginning).strip()

    def wait(self, seconds: float = WAIT_S) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            message = f"still running after {seconds} s: {self.arguments}: {self.text}"
            raise AssertionError(message) from None

    def close_input(self, seconds: float = WAIT_S) -> int:
        """End a program that runs until the end of its input; return its exit code."""
        self.process.stdin.close()
        return self.wait(seconds)

    def terminate(self, seconds: float = WAIT_S) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def status(self, field: str) -> int:
        """Return a number of /proc/PID/status: `VmRSS` (KiB), `Threads`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0])
        raise KeyError(field)

    def rss_mib(self) -> float:
        return self.status("VmRSS") / 1024

    def threads(self) -> int:
        return self.status("Threads")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_ticks(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def work(self, ticks: int = 30) -> None:
        """Wait until it has used this much CPU time, in hundredths of a second."""
        end = self.cpu_ticks() + ticks
        wait_for(f"work of {self.arguments}", lambda: self.cpu_ticks() >= end)

    def work_for(self, seconds: float) -> None:
        """Wait until it has worked before and after a time of this length."""
        self.work(1)
        time.sleep(seconds)
        self.work(1)


@contextlib.contextmanager
def ready(*arguments: object) -> Iterator[Program]:
    """
    Start a program of another framework and wait until it is ready.

    A framework sometimes hangs while it starts, before any code under test runs: such a program is started anew,
    once.
    """
    with contextlib.ExitStack() as programs:
        program = programs.enter_context(Program(list(arguments)))
        try:
            program.wait_for_line("ready", 60)
        except AssertionError:
            programs.close()
            program = programs.enter_context(Program(list(arguments)))
            program.wait_for_line("ready")
        yield program


@contextlib.contextmanager
def jax_program(*options: object) -> Iterator[tuple[Program, int]]:
    """Start a JAX program that trains and serves its profiler; return it and its port."""
    port = free_port()
    with ready(sys.executable, HERE / "jax_program.py", port, *options) as program:
        yield program, port


@contextlib.contextmanager
def torch_xla_program() -> Iterator[tuple[Program, int]]:
    """Start a PyTorch/XLA program that trains and serves its profiler; return it and its port."""
    port = free_port()
    with ready(torch_xla_python(), HERE / "torch_xla_program.py", port) as program:
        yield program, port


def torch_xla_python() -> str:
    return os.environ["STEPSCOPE_TORCH_XLA_PYTHON"]


@contextlib.contextmanager
def our_program(*options: object) -> Iterator[tuple[Program, int]]:
    """Start the `serve` example; return it and its port."""
    with scratch() as folder:
        port_file = folder / "port"
        with Program([os.environ["STEPSCOPE_SERVE"], "--port", 0, "--port-file", port_file, *options]) as program:

            def port() -> int:
                if not program.alive():
                    message = f"ended with {program.process.returncode}: {program.text}"
                    raise AssertionError(message)
                text = port_file.read_text() if port_file.exists() else ""
                return int(text.strip() or 0)

            yield program, wait_for("the port of serve", port)


@dataclasses.dataclass(frozen=True)
class Ended:
    """Result of a command."""

    code: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"exit {self.code} after {self.seconds:.2f} s\n{self.out}\n{self.err}"


def run(*arguments: object, seconds: float = WAIT_S) -> Ended:
    begin = time.monotonic()
    ended = subprocess.run(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=seconds,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begin)


def stepscope(*arguments: object, seconds: float = WAIT_S) -> Ended:
    return run(stepscope_binary(), *arguments, seconds=seconds)


def capture_until_recorded(programs: list[Program], *arguments: object) -> Ended:
    """
    Run `stepscope capture` and end it by Ctrl-C when each JAX program has recorded its steps.

    The arguments set an interval of `FOR_EVER_MS`. It is the first capture of these programs.
    """
    begin = time.monotonic()
    with Program([stepscope_binary(), "capture", *arguments]) as running:
        for program in programs:
            program.wait_for_line("recorded")
        running.process.send_signal(signal.SIGINT)
        code = running.wait()
        return Ended(code, running.text, "", time.monotonic() - begin)


def info(path: Path) -> dict:
    """Return the output of `stepscope info --json`; every run must be complete."""
    ended = stepscope("info", "--json", "--no-cache", path)
    assert ended.code == 0, ended
    said = json.loads(ended.out)
    assert not said["errors"] and not said["problems"], said
    return said


def interval(path: Path) -> tuple[int, int]:
    """Return the start and end of the recording in Unix nanoseconds."""
    (run,) = info(path)["runs"]
    return run["start_unix_ns"], run["start_unix_ns"] + run["duration_ns"]


def at_one_time(paths: list[Path]) -> bool:
    """Return whether all recordings overlap."""
    begins, ends = zip(*map(interval, paths), strict=True)
    return max(begins) < min(ends)


def recordings(logdir: Path) -> list[Path]:
    return sorted(logdir.glob("plugins/profile/*/*.xplane.pb"))


def one_recording(logdir: Path) -> Path:
    found = recordings(logdir)
    assert len(found) == 1, sorted(str(path) for path in logdir.rglob("*"))
    return found[0]


def seen_by_jax(path: Path) -> Counter[str]:
    """Count the event names, as read by JAX's reader."""
    from jax.profiler import ProfileData

    planes = ProfileData.from_file(str(path)).planes
    return Counter(event.name for plane in planes for line in plane.lines for event in line.events)


def steps_seen_by_jax(path: Path, name: str) -> list[int]:
    """Return the `step_num` of each event with that name, ascending."""
    from jax.profiler import ProfileData

    found = [
        (event.start_ns, event.duration_ns, dict(event.stats))
        for plane in ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
        if event.name == name
    ]
    without = [one for one in found if "step_num" not in one[2]]
    assert not without, f"{len(without)} of {len(found)} steps have no number: {without[:3]} among {found[:3]}"
    return sorted(int(stats["step_num"]) for _, _, stats in found)


def seen_by_xprof(path: Path) -> tuple[Counter[str], int]:
    """Return the slice names of XProf's trace viewer, and the number of step groups; its overview must open, too."""
    from xprof.convert import raw_to_tool_data

    overview, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "overview_page", {})
    assert overview and json.loads(overview), f"XProf's overview of {path} is empty"
    trace, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "trace_viewer", {"resolution": "0"})
    events = json.loads(trace)["traceEvents"]
    slices = [event for event in events if event.get("ph") == "X"]
    groups = {event["args"]["group_id"] for event in slices if "group_id" in event.get("args", {})}
    return Counter(event.get("name") for event in slices), len(groups)
