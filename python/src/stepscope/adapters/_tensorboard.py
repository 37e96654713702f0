"""
TensorBoard's plugin: our viewer in a tab, through TensorBoard's own port.

TensorBoard finds it by the entry point; no other module imports this. Our server listens on a port of this
machine that only this process can ask, since it alone knows the token; requests below
``data/plugin/stepscope/app/`` are passed on to it and its answers passed back as they come, the stream
of events included. TensorFlow is not imported.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import ipaddress
import secrets
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from stepscope import _core
from stepscope.reading._sql_engine import installed_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Environment = dict[str, Any]
    StartResponse = Callable[[str, list[tuple[str, str]]], Any]

_base: Any = importlib.import_module("tensorboard.plugins.base_plugin")

_ROOT = "/data/plugin/stepscope/app"
_CHUNK = 1 << 16
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# What the connection to us is about, or what TensorBoard says by itself.
_NOT_PASSED_BACK = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server"})
_PASSED_ON = (
    "Accept",
    "Accept-Encoding",
    "Cache-Control",
    "If-None-Match",
    "Last-Event-ID",
    "Range",
    "Sec-Fetch-Site",
    "X-Stepscope-Token",
)
_ENTRY = b"""// The page of the tab becomes the viewer.
export function render() {
  location.replace(new URL('app/', import.meta.url));
}
"""


class StepscopePlugin(_base.TBPlugin):  # type: ignore[misc]
    """
    The tab *stepscope*.

    Parameters
    ----------
    context
        What TensorBoard tells its plugins.
    """

    plugin_name = "stepscope"

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._log_dirs = log_dirs(context)
        self._served_name = str(getattr(getattr(context, "flags", None), "host", "") or "")
        self._token = secrets.token_hex(16)
        self._port: int | None = None
        self._lock = threading.Lock()

    def get_plugin_apps(self) -> dict[str, Callable[[Environment, StartResponse], Iterable[bytes]]]:
        """Give what answers below ``data/plugin/stepscope``."""
        # TensorBoard takes a slash at the end of an address away before it looks.
        return {"/index.js": _entry, "/app": self._viewer, "/app/*": self._viewer}

    def is_active(self) -> bool:
        """Tell whether there is a run to show."""
        with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
            connection = self._connect(timeout_s=2.0)
            with contextlib.closing(connection):
                connection.request("GET", "/api/v1/runs?limit=1", headers=self._headers())
                return b'"total":0,' not in connection.getresponse().read()
        return False

    def frontend_metadata(self) -> Any:
        """Say how the tab is shown."""
        return _base.FrontendMetadata(es_module_path="/index.js", tab_name="stepscope", disable_reload=True)

    def _connect(self, *, timeout_s: float) -> http.client.HTTPConnection:
        """
        Connect to our server, which begins to serve with the first request.

        Raises
        ------
        OSError
            The log directory does not exist yet, or cannot be read.
        """
        with self._lock:
            if self._port is None:
                if not self._log_dirs:
                    message = "the log directory is not on this machine"
                    raise OSError(message)
                self._port = _core.serve_viewer(
                    self._log_dirs, token=self._token, sql_program=installed_engine()
                )
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _viewer(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on to our server, and its answer back."""
        method = environment["REQUEST_METHOD"]
        if method not in _SAFE_METHODS and not self._may_write(environment):
            return _text(start_response, "403 Forbidden", "writes come from the viewer's own page")
        headers = self._headers()
        for name in _PASSED_ON:
            value = environment.get("HTTP_" + name.upper().replace("-", "_"))
            if value:
                headers[name] = value
        body: Any = None
        if method not in _SAFE_METHODS:
            headers["Content-Length"] = environment.get("CONTENT_LENGTH") or "0"
            if environment.get("CONTENT_TYPE"):
                headers["Content-Type"] = environment["CONTENT_TYPE"]
            body = _Body(environment["wsgi.input"], int(headers["Content-Length"]))
        try:
            # Longer than any request waits, and than the stream of events is silent.
            connection = self._connect(timeout_s=120.0)
        except (OSError, RuntimeError) as error:
            return _text(start_response, "503 Service Unavailable", f"stepscope has nothing to show: {error}")
        try:
            connection.request(method, _target(environment), body=body, headers=headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return _text(start_response, "502 Bad Gateway", f"stepscope does not answer: {error}")
        back = [(name, value) for name, value in answer.getheaders() if name.lower() not in _NOT_PASSED_BACK]
        start_response(f"{answer.status} {answer.reason}", back)
        return _Answer(connection, answer)

    def _may_write(self, environment: Environment) -> bool:
        """Tell whether the request comes from our page, by a name that no other site can take."""
        host = environment.get("HTTP_HOST", "")
        origin = environment.get("HTTP_ORIGIN")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return False
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        own = {"localhost", self._served_name.lower(), socket.gethostname().lower()}
        return bool(name) and name in own


class _Body:
    """A request's body, limited to its announced length."""

    def __init__(self, stream: Any, length: int) -> None:
        self._stream = stream
        self._left = length

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data: bytes = self._stream.read(wanted) if wanted else b""
        self._left -= len(data)
        return data


class _Answer:
    """An answer's body as it comes."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with contextlib.suppress(OSError, http.client.HTTPException):
            # What is there, without waiting for a full chunk: events must not wait for one another.
            while data := self._answer.read1(_CHUNK):
                yield data

    def close(self) -> None:
        """End the request to our server; called also when the browser went away."""
        self._connection.close()


def log_dirs(context: Any) -> list[str]:
    """Collect the log directories of this machine from TensorBoard's flags."""
    flags = getattr(context, "flags", None)
    given = [getattr(context, "logdir", None) or getattr(flags, "logdir", "") or ""]
    for part in (getattr(flags, "logdir_spec", "") or "").split(","):
        name, colon, path = part.partition(":")
        given.append(path if colon and "/" not in name else part)
    return [str(Path(path).expanduser()) for path in given if path and "://" not in path]


def _entry(environment: Environment, start_response: StartResponse) -> Iterable[bytes]:  # noqa: ARG001 - WSGI
    start_response("200 OK", _headers_of("text/javascript; charset=utf-8", _ENTRY))
    return [_ENTRY]


def _text(start_response: StartResponse, status: str, text: str) -> Iterable[bytes]:
    body = (text + "\n").encode()
    start_response(status, _headers_of("text/plain; charset=utf-8", body))
    return [body]


def _headers_of(content_type: str, body: bytes) -> list[tuple[str, str]]:
    return [
        ("Content-Type", content_type),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-cache"),
        ("X-Content-Type-Options", "nosniff"),
    ]


def _target(environment: Environment) -> str:
    """Name what is asked of our server: the address below ours, its escapes as they came where known."""
    raw = environment.get("REQUEST_URI") or environment.get("RAW_URI") or ""
    path = urlsplit(raw).path if raw.startswith("http") else raw.partition("?")[0]
    _, found, below = path.partition(_ROOT)
    if not found:
        # Servers that tell only what the escapes stand for.
        decoded = environment.get("PATH_INFO", "").encode("latin-1")
        below = quote(decoded.partition(_ROOT.encode())[2], safe="/:@!$&'()*+,;=~")
    query = environment.get("QUERY_STRING", "")
    return f"/{below.lstrip('/')}" + (f"?{query}" if query else "")
