"""
The capture protocol with raw messages, for requests that no stock client sends: gRPC by Google's library.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from programs import WAIT_S

SERVICE = "/tensorflow.ProfilerService/"


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def blob(field: int, value: bytes | str) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def profile_request(milliseconds: int, session: str = "wire", *more: bytes, options: bytes = b"") -> bytes:
    """Encode a `ProfileRequest` whose response contains the XSpace."""
    levels = number(2, 2) + number(3, 1) + number(4, 1)
    asked = number(5, 1) + levels + number(9, milliseconds) + options
    return number(1, milliseconds) + blob(4, asked) + blob(6, session) + number(9, 1) + b"".join(more)


def terminate_request(session: str) -> bytes:
    return blob(1, session)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Decode the fields of a message with wire types 0 and 2."""
    at = 0
    while at < len(message):
        tag, at = _read(message, at)
        if tag & 7 == 0:
            value, at = _read(message, at)
            yield tag >> 3, value
        else:
            assert tag & 7 == 2, tag
            size, at = _read(message, at)
            yield tag >> 3, message[at : at + size]
            at += size


def xspace_of(response: bytes) -> bytes:
    """Return the XSpace of a `ProfileResponse`, in either of its fields."""
    for field, value in fields(response):
        if field == 8 and value:
            return value
        if field == 6:
            tool = dict(fields(value))
            if tool.get(1, b"").endswith(b"xplane.pb"):
                return tool[2]
    return b""


def call(channel: grpc.Channel, method: str, message: bytes, seconds: float = WAIT_S, service: str = SERVICE) -> bytes:
    return future(channel, method, message, seconds, service).result()


def future(
    channel: grpc.Channel, method: str, message: bytes, seconds: float = WAIT_S, service: str = SERVICE
) -> grpc.Future:
    stub = channel.unary_unary(service + method, request_serializer=None, response_deserializer=None)
    return stub.future(message, timeout=seconds)


def is_busy(port: int) -> bool:
    """Return whether a capture is running. The check itself is a capture of a millisecond."""
    with channel(port) as open_channel:
        try:
            call(open_channel, "Profile", profile_request(1))
        except grpc.RpcError:
            return True
    return False


def channel(port: int) -> grpc.Channel:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=options)


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
