"""One trace, served to ui.perfetto.dev until it was fetched."""

from __future__ import annotations

import http.server
import threading
import warnings
from typing import TYPE_CHECKING

from stepscope._errors import StepscopeWarning

if TYPE_CHECKING:
    from pathlib import Path

PORT = 9001
"""The only port that Perfetto's content policy lets its page fetch from."""
_ORIGIN = "https://ui.perfetto.dev"
_ADDRESS = "/perfetto_trace.json.gz"


def serve_once(path: Path, port: int = PORT) -> bool:
    """
    Print a link to a trace and serve it until it was fetched once, or until Ctrl-C.

    Only this one file is served, to this machine only. False when the port is taken: the file can be
    dragged into Perfetto instead, and a warning explains it.
    """
    content = path.read_bytes()

    fetched = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != _ADDRESS:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", _ORIGIN)
            self.send_header("Cache-Control", "no-cache")
            self.send_header("Content-Type", "application/gzip")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            fetched.set()
            # Runs on a thread of its own.
            self.server.shutdown()

        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        # A thread for each connection: browsers open some that they do not use yet.
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        warnings.warn(
            f"cannot serve a link for Perfetto on port {port}: {error.strerror}\n"
            f"help: open {_ORIGIN} and drop this file into it: {path}",
            StepscopeWarning,
            stacklevel=3,
        )
        return False
    with server:
        print(f"Open URL in browser: {_ORIGIN}/#!/?url=http://127.0.0.1:{port}{_ADDRESS}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if not fetched.is_set():
                print("Not fetched:", path)
    return True
