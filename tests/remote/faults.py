"""
Tests of faults on the port of a capture server: its program continues, with correct results and bounded memory.

    STEPSCOPE_SERVE=… STEPSCOPE_BIN=… python faults.py [TEST…]

All faults hit one program, one after the other, and each must leave it able to be captured. At the end its
checksum must be that of as many steps without a server.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import sys
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

import grpc
import wire
from programs import (
    FOR_EVER_MS,
    WAIT_S,
    Program,
    one_recording,
    our_program,
    recordings,
    run,
    run_tests,
    scratch,
    seen_by_jax,
    stepscope,
    stepscope_binary,
    wait_for,
)

# Allowed growth of the program during faults: its allocator retains the memory of a capture.
GROWTH_MIB = 96
QUICK_CONNECTIONS = 10_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


def summary(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(steps|checksum)=(\w+)$", text, re.MULTILINE))


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        serving = our_program("--until-eof", "--pause-ms", 2)
        cls.program, cls.port = serving.__enter__()
        cls.addClassCleanup(serving.__exit__, None, None, None)
        cls.capture()
        cls.rss_mib = cls.program.rss_mib()
        cls.threads = cls.program.threads()
        cls.descriptors = cls.program.descriptors()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.program.process.stdin.close()
        assert cls.program.wait() == 0, cls.program.text
        mistreated = summary(cls.program.text)
        alone = run(os.environ["STEPSCOPE_SERVE"], "--no-server", "--steps", mistreated["steps"], seconds=120)
        assert alone.code == 0, alone
        assert summary(alone.out) == mistreated, (alone.out, mistreated)
        print(f"\n{mistreated['steps']} steps, checksum {mistreated['checksum']} with and without the faults")

    @classmethod
    def capture(cls) -> None:
        """Capture 100 ms with raw messages, or longer on a busy machine; the capture must have spans."""
        for milliseconds in (100 << doublings for doublings in range(10)):
            with wire.channel(cls.port) as channel:
                spans = wire.xspace_of(wire.call(channel, "Profile", wire.profile_request(milliseconds)))
            if b"matmul_block" in spans:
                return
            print(f" (nothing in {milliseconds} ms) ", end="", file=sys.stderr)
        raise AssertionError(spans[:200])

    def tearDown(self) -> None:
        """Check after each fault that the program lives, can be captured, and has released its resources."""
        self.assertTrue(self.program.alive(), self.program.text)
        self.free_again()
        wait_for("descriptors given back", lambda: self.program.descriptors() <= self.descriptors)
        wait_for("threads given back", lambda: self.program.threads() <= self.threads)
        self.assertLess(self.program.rss_mib(), self.rss_mib + GROWTH_MIB)

    def free_again(self) -> None:
        """Check that a capture succeeds, long before the broken one would have ended."""

        def succeeds() -> bool:
            try:
                self.capture()
            except grpc.RpcError as error:
                self.assertNotEqual(error.code(), grpc.StatusCode.UNAVAILABLE, error)
                return False
            return True

        wait_for("the profiler to be free", succeeds)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def refused_with(self, method: str, message: bytes, service: str = wire.SERVICE) -> grpc.RpcError:
        with wire.channel(self.port) as channel, self.assertRaises(grpc.RpcError) as caught:
            wire.call(channel, method, message, service=service)
        return caught.exception

    def test_terminate_in_the_middle_returns_the_recorded_part(self) -> None:
        with wire.channel(self.port) as channel:
            answer = self.start_capture(channel, FOR_EVER_MS, "middle")
            self.program.work()
            wire.call(channel, "Terminate", wire.terminate_request("middle"))
            spans = wire.xspace_of(answer.result(timeout=WAIT_S))
            self.assertIn(b"matmul_block", spans)

    def test_a_terminate_without_a_capture_is_an_error(self) -> None:
        for message in (wire.terminate_request("nobody"), b""):
            self.assertEqual(self.refused_with("Terminate", message).code(), grpc.StatusCode.NOT_FOUND)

    def test_a_client_killed_in_the_middle_ends_its_capture(self) -> None:
        for kill in (signal.SIGKILL, signal.SIGTERM):
            with scratch() as logdir:
                # A probe for a running capture may block it for a millisecond.
                command = ("capture", f"localhost:{self.port}", "--duration-ms", FOR_EVER_MS, "--retries", 9)
                command = (*command, "--logdir", logdir)
                with Program([stepscope_binary(), *command]) as client:
                    wait_for("the capture to begin", self.is_busy)
                    client.process.send_signal(kill)
                    client.wait()
                    self.free_again()

    def test_a_call_that_is_cancelled_ends_its_capture(self) -> None:
        with wire.channel(self.port) as channel:
            answer = self.start_capture(channel, FOR_EVER_MS)
            answer.cancel()
            self.free_again()

    def test_a_deadline_that_passes_ends_its_capture(self) -> None:
        with wire.channel(self.port) as channel:
            answer = self.start_capture(channel, FOR_EVER_MS, seconds=2)
            with self.assertRaises(grpc.RpcError) as caught:
                answer.result()
        # Both sides have a timeout; the server reports that it gave up, the client that the deadline expired.
        self.assertIn(caught.exception.code().name, ("CANCELLED", "DEADLINE_EXCEEDED"))
        self.free_again()

    def test_two_at_once_one_of_them_gets_busy(self) -> None:
        with wire.channel(self.port) as channel:
            first = self.start_capture(channel, FOR_EVER_MS, "first")
            with scratch() as logdir:
                second = stepscope("capture", f"localhost:{self.port}", "--duration-ms", 50, "--logdir", logdir)
                self.assertEqual(second.code, 1, second)
                self.assertRegex(second.out + second.err, "busy")
            wire.call(channel, "Terminate", wire.terminate_request("first"))
            self.assertIn(b"matmul_block", wire.xspace_of(first.result()))

    def is_busy(self) -> bool:
        return wire.is_busy(self.port)

    def start_capture(
        self, channel: grpc.Channel, milliseconds: int, session: str = "wire", seconds: float = WAIT_S
    ) -> grpc.Future:
        """Start a capture; start it again when a probe blocked it, or its `seconds` passed before it began."""

        def begin() -> grpc.Future | None:
            answer = wire.future(channel, "Profile", wire.profile_request(milliseconds, session), seconds)
            while not answer.done():
                if self.is_busy() and not answer.done():
                    return answer
            return None

        return wait_for("the capture to begin", begin)

    def test_impossible_durations_are_refused(self) -> None:
        for milliseconds in (-1, 10**12, 2**63):
            with self.subTest(milliseconds):
                error = self.refused_with("Profile", wire.profile_request(milliseconds))
                self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT, error)
                self.assertRegex(error.details(), "ms|duration")

    def test_wrong_methods_and_messages_are_refused(self) -> None:
        for service, method, code in [
            (wire.SERVICE, "Shutdown", "UNIMPLEMENTED"),
            ("/tensorflow.Nothing/", "Profile", "UNIMPLEMENTED"),
            ("/", "..%2f..%2fetc%2fpasswd", "UNIMPLEMENTED"),
        ]:
            error = self.refused_with(method, b"", service)
            self.assertEqual(error.code().name, code, error)
        for garbage in (b"\xff" * 100, b"\x22\xff\xff\xff\xff\x0f", os.urandom(10_000), b"\x0a" * 65_536):
            error = self.refused_with("Profile", garbage)
            self.assertIn(error.code().name, ("INVALID_ARGUMENT", "INTERNAL"), error)
        # Larger than any valid request.
        error = self.refused_with("Profile", wire.profile_request(1, "x" * (32 << 20)))
        self.assertIn(error.code().name, ("OUT_OF_RANGE", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"), error)

    def test_garbage_bytes(self) -> None:
        noise = random.Random(1)
        openings = [
            b"\0",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET " + b"a" * 1_000_000,
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + noise.randbytes(500),
            PREFACE[:10],
            PREFACE + noise.randbytes(4_096),
            PREFACE + b"\xff\xff\xff\x01\x05\xff\xff\xff\xff" + b"x" * 100_000,
            # Headers that never end, empty frames without end, pings and resets without end.
            PREFACE + SETTINGS + b"\0\x40\0\x01\0\0\0\0\x01" + b"\0" * 16_384 + (b"\0\x40\0\x09\0\0\0\0\x01" + b"\0" * 16_384) * 64,
            PREFACE + SETTINGS * 20_000,
            PREFACE + SETTINGS + b"\0\0\x08\x06\0\0\0\0\0abcdefgh" * 20_000,
            PREFACE + SETTINGS + b"".join(b"\0\0\x04\x03\0" + n.to_bytes(4, "big") + b"\0\0\0\x08" for n in range(1, 20_001, 2)),
            *(noise.randbytes(noise.randrange(1, 3_000)) for _ in range(200)),
        ]
        for opening in openings:
            with self.connect() as stream:
                try:
                    stream.sendall(opening)
                    stream.shutdown(socket.SHUT_WR)
                    stream.settimeout(5)
                    while stream.recv(65_536):
                        pass
                except OSError:
                    continue

    def test_10_000_quick_connections(self) -> None:
        begin = time.monotonic()
        busiest = 0
        for number in range(QUICK_CONNECTIONS):
            with self.connect() as stream:
                if number % 3 == 1:
                    stream.sendall(PREFACE + SETTINGS)
                if number % 5 == 2:
                    # Ends by a reset instead of a goodbye.
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if number % 500 == 0:
                busiest = max(busiest, self.program.descriptors())
        print(f" ({QUICK_CONNECTIONS} in {time.monotonic() - begin:.1f} s, at most {busiest} open) ", end="", file=sys.stderr)
        self.assertLess(busiest, self.descriptors + 1_200)

    def test_connections_without_requests_block_no_client(self) -> None:
        silent = [self.connect() for _ in range(300)]
        try:
            for stream in silent[::2]:
                stream.sendall(PREFACE[: random.Random(2).randrange(24)])
            self.capture()
        finally:
            for stream in silent:
                stream.close()


class Repeated(unittest.TestCase):
    def test_100_captures_in_a_row_leak_nothing(self) -> None:
        def capture(logdir: os.PathLike[str], number: int) -> None:
            ended = stepscope(
                *("capture", f"localhost:{port}", "--duration-ms", 30, "--logdir", logdir),
                *("--session", f"s{number}", "--retries", 5),
            )
            self.assertEqual(ended.code, 0, ended)

        with scratch() as logdir, our_program() as (program, port):
            for number in range(20):
                capture(logdir, number)
            wait_for("quiet", lambda: program.descriptors() <= 64)
            rss_mib, threads, descriptors = program.rss_mib(), program.threads(), program.descriptors()
            for number in range(20, 120):
                capture(logdir, number)
            self.assertEqual(len(recordings(logdir)), 120)
            wait_for("threads given back", lambda: program.threads() <= threads)
            wait_for("descriptors given back", lambda: program.descriptors() <= descriptors)
            grown_mib = program.rss_mib() - rss_mib
            print(f" (grown by {grown_mib:.1f} MiB) ", end="", file=sys.stderr)
            self.assertLess(grown_mib, 16)


class ProgramKilled(unittest.TestCase):
    @contextlib.contextmanager
    def capture(self, logdir: Path, port: int) -> Iterator[Program]:
        """Start a client and its capture; retry when a probe blocked it."""
        command = ("capture", f"localhost:{port}", "--duration-ms", FOR_EVER_MS, "--logdir", logdir)
        for _ in range(9):
            with Program([stepscope_binary(), *command]) as client:
                wait_for("the capture to begin", lambda: not client.alive() or wire.is_busy(port))
                if client.alive():
                    yield client
                    return
                self.assertRegex(client.text, "busy")
        self.fail("no capture began")

    def test_a_client_reports_that_the_program_died(self) -> None:
        with scratch() as logdir, our_program() as (program, port):
            with self.capture(logdir, port) as client:
                program.process.kill()
                self.assertEqual(client.wait(), 1, client.text)
                self.assertRegex(client.text, "connection broke")
            self.assertEqual(recordings(logdir), [])

    def test_a_program_that_ends_gives_the_capture_its_data(self) -> None:
        with scratch() as logdir, our_program("--until-eof") as (program, port):
            with self.capture(logdir, port) as client:
                program.work()
                program.process.stdin.close()
                self.assertEqual(program.wait(), 0, program.text)
                self.assertEqual(client.wait(), 0, client.text)
                self.assertGreaterEqual(seen_by_jax(one_recording(logdir))["forward"], 2, client.text)


if __name__ == "__main__":
    run_tests()
