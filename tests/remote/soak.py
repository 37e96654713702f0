"""
Runs recorder, captures, server and browser for a given time with injected faults, and shows the resource usage.

    STEPSCOPE_SERVE=… STEPSCOPE_BIN=… python soak.py [--minutes 60] [--seed 1]

Optional: STEPSCOPE_CHROMIUM (a browser), STEPSCOPE_PACKAGE_PYTHON (an interpreter with the package). A missing
one is reported as not run.

Workers share one log directory, which `stepscope view` serves. Faults: killed clients and programs, stalled
bodies, garbage on both ports, truncated and replaced files, truncated journals of programs that record, stopped
processes, a full cache folder. Faults write to files of the soak's own folder only, never through links. At regular
intervals the table gets a row. At the end of the warm-up and at the end all workers rest until handles and
threads have come down. The soak fails when handles or threads are more at the end than after the warm-up, when
memory grew by more than GROWTH_MIB, when a request failed that no fault explains, or when something panicked.
Records that recorders dropped are counted: their rings are bounded by decision.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

from programs import HERE, WAIT_S, Program, our_program, run, stepscope, stepscope_binary, wait_for

DOCS = HERE.parent.parent / "docs/reference/http.md"
GROWTH_MIB = 96
WARM_UP_SHARE = 0.25
ROWS = 24
REQUEST_THREADS = 4
STALLED_BODIES = 8
CACHE_MIB = 64
MOST_SESSIONS = 40
# Diagnostics of recordings whose recorder lost records.
LOSS_CODES = ("recorder-overflow", "dropped-by-writer")


class Soak:
    """State shared by the workers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder.resolve(strict=True)
        self.logs = self.folder / "logs"
        self.files = self.logs / "files"
        self.files.mkdir(parents=True)
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.not_run: dict[str, str] = {}
        self.stopping = threading.Event()
        self.working = threading.Event()
        self.working.set()
        self.busy: Counter[str] = Counter()
        self.lock = threading.Lock()

    def inside(self, path: Path) -> Path:
        """Returns the path of a file that a fault may write to; refuses links and paths outside the soak's folder."""
        if path.is_symlink() or not path.resolve().is_relative_to(self.folder):
            message = f"cannot write to {path}: it is a link or not below {self.folder}"
            raise AssertionError(message)
        return path

    def count(self, what: str, number: int = 1) -> None:
        with self.lock:
            self.counts[what] += number

    def fail(self, what: str) -> None:
        with self.lock:
            self.counts["failures"] += 1
            if len(self.failures) < 50:
                self.failures.append(what)
                # At once: an hour's run may be stopped before its end.
                print(f"failure: {what}", file=sys.stderr, flush=True)

    def sleep(self, seconds: float) -> None:
        self.stopping.wait(seconds)

    def start(self, name: str, work: Callable[[random.Random], None]) -> threading.Thread:
        """Repeats the work on a thread until the soak stops; pauses between two rounds when asked."""
        noise = random.Random(f"{self.seed} {name}")

        def repeat() -> None:
            while not self.stopping.is_set():
                if not self.working.wait(0.2):
                    continue
                with self.lock:
                    self.busy[name] = 1
                try:
                    if self.working.is_set():
                        work(noise)
                except Exception:  # noqa: BLE001 a worker that fails is a finding, not the end
                    self.fail(f"{name}: {traceback.format_exc()}")
                    self.sleep(1)
                finally:
                    with self.lock:
                        self.busy[name] = 0

        thread = threading.Thread(target=repeat, name=name, daemon=True)
        thread.start()
        return thread

    def rest(self) -> None:
        """Waits until every worker has finished its round."""
        self.working.clear()
        wait_for("the workers to rest", lambda: sum(self.busy.values()) == 0, 2 * WAIT_S)


def trace_text(noise: random.Random, events: int) -> str:
    rows = [
        f'{{"ph":"X","cat":"cpu_op","name":"op{noise.randrange(50)}","pid":1,"tid":{number % 4},'
        f'"ts":{number * 10},"dur":{noise.randrange(1, 9)},"args":{{"n":{number}}}}}'
        for number in range(events)
    ]
    return '{"traceEvents":[' + ",".join(rows) + "]}"


# --- recorders and captures


def capture_worker(soak: Soak, port: int) -> Callable[[random.Random], None]:
    def capture(noise: random.Random) -> None:
        session = f"s{soak.counts['captures'] + soak.counts['captures killed']}"
        milliseconds = noise.choice([30, 100, 300, 1_000])
        command = ("capture", f"localhost:{port}", "--duration-ms", milliseconds, "--retries", 20)
        command = (*command, "--logdir", soak.logs, "--session", session)
        if noise.random() < 0.2:
            with Program([stepscope_binary(), *command]) as client:
                soak.sleep(noise.random() * milliseconds / 1_000)
                client.process.send_signal(noise.choice([signal.SIGKILL, signal.SIGTERM]))
                client.wait()
            soak.count("captures killed")
            return
        ended = stepscope(*command)
        soak.count("captures")
        if ended.code != 0:
            soak.fail(f"capture: {ended}")
        elif soak.counts["captures"] % 10 == 0:
            look_for_losses(soak, soak.logs / "plugins/profile" / session)
        forget_oldest(soak.logs / "plugins/profile")

    return capture


def look_for_losses(soak: Soak, path: Path) -> None:
    """Counts the dropped records that recorders report."""
    ended = stepscope("info", "--json", "--no-cache", path)
    if ended.code != 0:
        soak.fail(f"info: {ended}")
        return
    soak.count("recordings looked at")
    for recording in json.loads(ended.out)["runs"]:
        lost = [found["count"] for found in recording["warnings"] if found["code"] in LOSS_CODES]
        soak.count("records lost", sum(lost))


def forget_oldest(profile: Path) -> None:
    def changed(path: Path) -> float:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
        return 0

    with contextlib.suppress(OSError):
        for session in sorted(profile.iterdir(), key=changed)[:-MOST_SESSIONS]:
            shutil.rmtree(session, ignore_errors=True)


def recorder_worker(soak: Soak) -> Callable[[random.Random], None]:
    """A program that records itself; it is killed sometimes, and the server recovers its journal."""

    def record(noise: random.Random) -> None:
        seconds = noise.choice([0.5, 1, 3])
        options = ("--no-server", "--trace", soak.logs, "--seconds", seconds, "--extra-spans", 200)
        with Program([os.environ["STEPSCOPE_SERVE"], *options]) as program:
            if noise.random() < 0.3:
                soak.sleep(noise.random() * seconds)
                program.process.kill()
                program.wait()
                soak.count("recorders killed")
                return
            if program.wait() != 0:
                soak.fail(f"recorder: {program.text}")
            soak.count("recordings")

    return record


def python_worker(soak: Soak, python: str) -> Callable[[random.Random], None]:
    """The Python package: threads, labels and steps."""

    def record(_noise: random.Random) -> None:
        ended = run(python, HERE / "soak_program.py", soak.logs)
        if ended.code != 0:
            soak.fail(f"python: {ended}")
        soak.count("python recordings")

    return record


# --- the server


def templates() -> list[tuple[str, str, str]]:
    """Method, path and body of every request about runs in the documentation of the interface."""
    text = DOCS.read_text()
    found = re.findall(r"```http\n(GET|POST|PUT) (/api/v1/\S+)\n((?:[\w-]+: [^\n]*\n)*)\n?(.*?)```", text, re.DOTALL)
    asked = [(method, path, body.strip()) for method, path, _, body in found]
    # Another worker makes captures, and the server would record into the served folder for minutes.
    return [one for one in asked if "/capture" not in one[1]]


class Client:
    """A persistent connection, as in browsers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = self.open()

    def open(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def reopen(self) -> None:
        self.connection.close()
        self.connection = self.open()

    def ask(self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        for attempt in range(2):
            try:
                self.connection.request(method, path, body or None, headers or {})
                answer = self.connection.getresponse()
                return answer.status, answer.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # The server closes idle connections.
                self.reopen()
                if attempt:
                    raise
            except TimeoutError as error:
                # The late answer must not be read as that of the next request.
                self.reopen()
                raise TimeoutError(f"{method} {path}: no answer within {WAIT_S} s") from error
        raise AssertionError


def request_worker(soak: Soak, port: int, heavy: bool) -> Callable[[random.Random], None]:
    client = Client(port)
    asked = templates()
    assert len(asked) > 20, asked
    token = json.loads(client.ask("GET", "/api/v1/server")[1])["token"]
    state: dict[str, list[str]] = {"runs": []}

    def ask(noise: random.Random) -> None:
        _, body = client.ask("GET", "/api/v1/runs")
        state["runs"] = [row["id"] for row in json.loads(body)["runs"]]
        for _ in range(50 if heavy else 5):
            if soak.stopping.is_set() or not soak.working.is_set():
                return
            method, path, body = noise.choice(asked)
            if "/runs/demo.json" in path and state["runs"]:
                path = path.replace("demo.json", urllib.parse.quote(noise.choice(state["runs"]), safe=""))
            if noise.random() < 0.7:
                path = re.sub(r"(?<=[=/,])\d+(?=$|[&,])", lambda _: str(noise.choice([0, 1, 7, 500, 10**6])), path)
            headers = {"Content-Type": "application/json", "X-Stepscope-Token": token} if body else {}
            if path.endswith("/import"):
                body = '{"example":true}'
            status, answer = client.ask(method, path, body, headers)
            soak.count("requests")
            soak.count(f"HTTP {status}")
            # A report that is not built yet; a full cache folder, which is one of the faults.
            if status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED and b"the disk is full" not in answer:
                soak.fail(f"{method} {path}: {status} {answer[:500]!r}")

    return ask


def event_worker(soak: Soak, port: int) -> Callable[[random.Random], None]:
    def listen(noise: random.Random) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
            connection.request("GET", "/api/v1/events")
            answer = connection.getresponse()
            first = answer.readline()
            assert first.startswith((b"retry", b"event")), (answer.status, first)
            soak.count("event streams")
            soak.sleep(noise.random() * 3)

    return listen


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as stream, contextlib.suppress(OSError):
        yield stream


def network_faults(soak: Soak, ports: list[int]) -> Callable[[random.Random], None]:
    stalled: list[socket.socket] = []

    def garbage(noise: random.Random) -> None:
        with connected(noise.choice(ports)) as stream:
            start = noise.choice([b"", b"GET ", b"POST /api/v1/runs/import HTTP/1.1\r\nHost: a\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
            stream.sendall(start + noise.randbytes(noise.randrange(1, 5_000)))
            stream.shutdown(socket.SHUT_WR)
            stream.settimeout(5)
            while stream.recv(65_536):
                pass

    def killed_client(noise: random.Random) -> None:
        with connected(ports[0]) as stream:
            stream.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if noise.random() < 0.5:
                # Closes with a reset instead of a regular shutdown.
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def stalled_body(_noise: random.Random) -> None:
        stream = socket.create_connection(("127.0.0.1", ports[0]), timeout=WAIT_S)
        head = b"POST /api/v1/runs/x/aggregate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        stream.sendall(head + b"Content-Length: 100\r\n\r\n{")
        stalled.append(stream)
        while len(stalled) > STALLED_BODIES:
            stalled.pop(0).close()

    def fault(noise: random.Random) -> None:
        one = noise.choice([garbage, killed_client, stalled_body])
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            one(noise)
        soak.count(f"fault: {one.__name__.replace('_', ' ')}")
        soak.sleep(noise.random() * 0.3)
        if not soak.working.is_set() or soak.stopping.is_set():
            while stalled:
                stalled.pop().close()

    return fault


def file_faults(soak: Soak) -> Callable[[random.Random], None]:
    def fault(noise: random.Random) -> None:
        path = soak.files / f"f{noise.randrange(12)}.trace.json"
        kind = noise.choice(["write", "write", "truncate", "garbage", "replace", "remove", "link", "cut gzip", "grow"])
        with contextlib.suppress(FileNotFoundError):
            # Never writes through a link: it may lead out of the soak's folder.
            if path.is_symlink():
                path.unlink()
            soak.inside(path)
            if kind == "write":
                path.write_text(trace_text(noise, noise.randrange(1, 3_000)))
            elif kind == "truncate":
                os.truncate(path, noise.randrange(path.stat().st_size + 1))
            elif kind == "garbage":
                with path.open("r+b") as file:
                    file.seek(noise.randrange(path.stat().st_size + 1))
                    file.write(noise.randbytes(200))
            elif kind == "replace":
                aside = soak.inside(path.with_suffix(".tmp"))
                aside.write_text(trace_text(noise, 500))
                aside.replace(path)
            elif kind == "remove":
                path.unlink()
            elif kind == "link":
                path.unlink(missing_ok=True)
                path.symlink_to(noise.choice([soak.folder, "nowhere", "f0.trace.json", "/dev/zero"]))
            elif kind == "cut gzip":
                packed = gzip.compress(trace_text(noise, 1_000).encode())
                path.write_bytes(packed[: noise.randrange(len(packed))])
            elif kind == "grow":
                with path.open("ab") as file:
                    file.write(b" " * 4_096)
        soak.count(f"fault: {kind} file")
        soak.sleep(noise.random())

    return fault


def journal_faults(soak: Soak) -> Callable[[random.Random], None]:
    """Opens and truncates files of journals while their programs record: the recorder moves its rings."""

    def fault(noise: random.Random) -> None:
        # Journals disappear with their programs, even during the search.
        with contextlib.suppress(FileNotFoundError):
            name = noise.choice(["rings", "events"])
            found = list(soak.logs.glob(f"plugins/profile/*/.stepscope-journal-*/{name}"))
            if found:
                path = soak.inside(noise.choice(found))
                truncates = noise.random() < 0.5
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    # The path may have been replaced meanwhile: the opened file is decisive.
                    opened = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
                    status = os.fstat(descriptor)
                    if not opened.is_relative_to(soak.folder) or not stat.S_ISREG(status.st_mode):
                        message = f"cannot truncate {opened}: it is no file below {soak.folder}"
                        raise AssertionError(message)
                    if truncates:
                        os.ftruncate(descriptor, noise.choice([0, noise.randrange(status.st_size + 1)]))
                finally:
                    os.close(descriptor)
                soak.count(f"fault: {'truncated' if truncates else 'opened'} {path.name}")
        soak.sleep(noise.random() * 0.5)

    return fault


def stall_faults(soak: Soak, subjects: list[Program]) -> Callable[[random.Random], None]:
    def stall(noise: random.Random) -> None:
        process = noise.choice(subjects).process
        process.send_signal(signal.SIGSTOP)
        try:
            soak.sleep(noise.choice([0.1, 0.3, 0.6, 1.5]) * 2 * noise.random())
        finally:
            process.send_signal(signal.SIGCONT)
        soak.count("fault: stopped process")
        soak.sleep(noise.random() * 10)

    return stall


def cache_faults(soak: Soak, cache: Path) -> Callable[[random.Random], None]:
    """Fills the file system of the cache, and removes entries."""

    def fault(noise: random.Random) -> None:
        filler = soak.inside(cache / "filler")
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
        soak.count("fault: full cache")
        soak.sleep(noise.random() * 5)
        filler.unlink(missing_ok=True)
        if noise.random() < 0.3:
            shutil.rmtree(soak.inside(cache / "stepscope"), ignore_errors=True)
        soak.inside(soak.logs / "large.trace.json").write_text(trace_text(noise, 90_000 + noise.randrange(1_000)))
        soak.sleep(noise.random() * 20)

    return fault


def browser_worker(soak: Soak, chromium: str, port: int) -> Callable[[random.Random], None]:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]

    def look(noise: random.Random) -> None:
        with tempfile.TemporaryDirectory(dir=soak.folder, ignore_cleanup_errors=True) as profile:
            command = [chromium, *flags, f"--user-data-dir={profile}", "--timeout=10000", "--dump-dom"]
            browser = subprocess.Popen(
                [*command, f"http://localhost:{port}/"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            killed = noise.random() < 0.3
            try:
                page, _ = browser.communicate(timeout=noise.random() * 5 if killed else WAIT_S)
                soak.count("pages")
                # The elements that the viewer's script creates.
                if b'class="ss-app"' not in page:
                    soak.fail(f"browser: the page stayed empty: {page[-2_000:]!r}")
            except subprocess.TimeoutExpired:
                soak.count("fault: killed browser")
                if not killed:
                    soak.fail("browser: no page")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(browser.pid, signal.SIGKILL)
                browser.wait()
                browser.stdout.close()

    return look


# --- measuring


class Table:
    """Memory, handles and threads of the processes, and the counters."""

    def __init__(self, soak: Soak, subjects: dict[str, Program]) -> None:
        self.soak = soak
        self.subjects = subjects
        self.begun = time.monotonic()
        columns = "".join(f" | {name:>8} MiB handles threads" for name in subjects)
        print(f"{'minute':>7} {'':<9}{columns} | requests captures recordings failures lost", flush=True)

    def current(self) -> dict[str, tuple[float, int, int]]:
        """Returns memory, handles and threads of each process."""
        return {
            name: (program.rss_mib(), program.descriptors(), program.threads())
            for name, program in self.subjects.items()
        }

    def row(
        self, label: str = "", values: dict[str, tuple[float, int, int]] | None = None
    ) -> dict[str, tuple[float, int, int]]:
        """Prints a row of the given values, or of the current ones, and returns them."""
        values = values or self.current()
        columns = "".join(f" | {rss:>12.1f} {handles:>7} {threads:>7}" for rss, handles, threads in values.values())
        counts = self.soak.counts
        recordings = counts["recordings"] + counts["python recordings"]
        counted = f"{counts['requests']:>8} {counts['captures']:>8} {recordings:>10} {counts['failures']:>8} {counts['records lost']:>4}"
        print(f"{(time.monotonic() - self.begun) / 60:>7.1f} {label:<9}{columns} | {counted}", flush=True)
        return values

    def quiet(self, label: str, most: dict[str, tuple[float, int, int]] | None = None) -> dict[str, tuple[float, int, int]]:
        """Measures while idle, after all values have decreased, to those of `most` if possible."""
        self.soak.rest()
        lowest = self.current()
        since = time.monotonic()

        def settled() -> bool:
            nonlocal since
            for name, now in self.current().items():
                best = lowest[name]
                lowest[name] = tuple(map(min, now, best))
                # The allocator returns memory in small parts for as long as the process lives.
                if now[0] < best[0] - 1 or now[1] < best[1] or now[2] < best[2]:
                    since = time.monotonic()
            if most and not any(grown(most[name], at) for name, at in lowest.items()):
                return True
            # Idle connections end after 30 s; idle threads after 10 s, and their memory is free after that.
            return time.monotonic() - since > 45

        wait_for("quiet", settled, 10 * WAIT_S)
        # With current values, a handle that is briefly open would count as a leak.
        return self.row(label, lowest)


def grown(before: tuple[float, int, int], after: tuple[float, int, int]) -> list[str]:
    """Returns what is more than after the warm-up: memory by more than the bound, handles, threads."""
    (rss, handles, threads), (rss_end, handles_end, threads_end) = before, after
    found = []
    if handles_end > handles:
        found.append(f"{handles} handles after the warm-up, {handles_end} at the end")
    if threads_end > threads:
        found.append(f"{threads} threads after the warm-up, {threads_end} at the end")
    if rss_end > rss + GROWTH_MIB:
        found.append(f"{rss:.0f} MiB after the warm-up, {rss_end:.0f} at the end; bound {GROWTH_MIB} MiB")
    return found


@contextlib.contextmanager
def small_cache(folder: Path, soak: Soak) -> Iterator[Path]:
    """A separate file system for the cache, so that it can become full."""
    cache = folder / "cache"
    cache.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={CACHE_MIB}m", "tmpfs", str(cache)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        soak.not_run["full cache"] = "a file system cannot be mounted: it needs root"
    try:
        yield cache
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(cache)], check=False)


def soak_for(minutes: float, seed: int, folder: Path) -> int:
    soak = Soak(folder, seed)
    folder = soak.folder
    noise = random.Random(seed)
    for number in range(12):
        (soak.files / f"f{number}.trace.json").write_text(trace_text(noise, 1_000))
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(small_cache(folder, soak))
        program, grpc_port = stack.enter_context(our_program("--until-eof", "--pause-ms", 2, "--keep-last", 2_000))
        environment = {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder)}
        command = [stepscope_binary(), "view", soak.logs, "--port", 0]
        server = stack.enter_context(Program(command, environment))
        port = int(server.wait_for_line("Port: "))
        subjects = {"server": server, "program": program}
        table = Table(soak, subjects)
        table.row("start")
        end = time.monotonic() + minutes * 60
        warm = time.monotonic() + minutes * 60 * WARM_UP_SHARE

        workers = {
            "captures": capture_worker(soak, grpc_port),
            "recorder": recorder_worker(soak),
            "network faults": network_faults(soak, [port, grpc_port]),
            "file faults": file_faults(soak),
            "journal faults": journal_faults(soak),
            "stalls": stall_faults(soak, list(subjects.values())),
            "events": event_worker(soak, port),
        }
        for number in range(REQUEST_THREADS):
            workers[f"requests {number}"] = request_worker(soak, port, heavy=True)
        if "full cache" not in soak.not_run:
            workers["cache"] = cache_faults(soak, cache)
        if chromium := os.environ.get("STEPSCOPE_CHROMIUM"):
            workers["browser"] = browser_worker(soak, chromium, port)
        else:
            soak.not_run["browser"] = os.environ.get("STEPSCOPE_NO_CHROMIUM", "STEPSCOPE_CHROMIUM names none")
        if python := os.environ.get("STEPSCOPE_PACKAGE_PYTHON"):
            workers["python"] = python_worker(soak, python)
        else:
            soak.not_run["python"] = os.environ.get("STEPSCOPE_NO_PACKAGE", "STEPSCOPE_PACKAGE_PYTHON names none")
        for name, why in soak.not_run.items():
            print(f"not run: {name}: {why}", flush=True)
        threads = [soak.start(name, work) for name, work in workers.items()]

        def alive() -> bool:
            return all(one.alive() for one in subjects.values())

        warmed = None
        pause = minutes * 60 / ROWS
        while time.monotonic() < end and alive():
            soak.sleep(min(pause, max(0.0, end - time.monotonic())))
            if not warmed and time.monotonic() >= warm and alive():
                warmed = table.quiet("warm")
                soak.working.set()
            elif alive():
                table.row()
        last = table.quiet("end", warmed) if alive() else None
        soak.stopping.set()
        for thread in threads:
            thread.join(WAIT_S)
        ended = {name: (one.alive(), one.text) for name, one in subjects.items()}
    return verdict(soak, ended, warmed, last)


def verdict(
    soak: Soak,
    ended: dict[str, tuple[bool, str]],
    warmed: dict[str, tuple[float, int, int]] | None,
    last: dict[str, tuple[float, int, int]] | None,
) -> int:
    print("\ncounts")
    for name, number in sorted(soak.counts.items()):
        print(f"  {name:<28} {number:>9}")
    faults = [f"request or worker: {text}" for text in soak.failures]
    for name, (alive, text) in ended.items():
        if not alive:
            faults.append(f"{name} ended: {text[-3_000:]}")
        elif "panicked" in text:
            faults.append(f"{name} panicked: {text[-3_000:]}")
    for name in ended:
        if warmed is None or last is None:
            continue
        faults.extend(f"{name}: {growth}" for growth in grown(warmed[name], last[name]))
    for fault in faults:
        print(f"FAILED: {fault}")
    print("soak: failed" if faults else "soak: ok")
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-soak-", ignore_cleanup_errors=True) as folder:
        return soak_for(options.minutes, options.seed, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
