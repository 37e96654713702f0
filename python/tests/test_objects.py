"""URLs as paths, of a web server on this machine."""

import functools
import http.server
import os
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import stepscope

EVENTS = '{"traceEvents":[{"ph":"X","name":"work","pid":1,"tid":2,"ts":1,"dur":4}]}'


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and prints nothing."""

    def log_message(self, *_: object) -> None:
        pass


class Objects(unittest.TestCase):
    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        (self.folder / "a.trace.json").write_text(EVENTS, encoding="utf-8")
        serve = functools.partial(Quiet, directory=held.name)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        own = {"XDG_CACHE_HOME": str(self.folder / "cache"), "NO_PROXY": "127.0.0.1"}
        patched = mock.patch.dict(os.environ, own)
        patched.start()
        self.addCleanup(patched.stop)

    def test_a_file_of_a_web_server_opens(self) -> None:
        run = stepscope.open(f"{self.url}/a.trace.json").run
        self.assertEqual(run.name, "a.trace.json")
        self.assertEqual(sum(len(track.slices) for track in run.tracks), 1)
        copies = [*(self.folder / "cache/stepscope/objects").rglob("a.trace.json")]
        self.assertEqual([copy.read_text(encoding="utf-8") for copy in copies], [EVENTS])

    def test_what_is_not_there_is_not_found(self) -> None:
        with self.assertRaises(stepscope.TraceNotFoundError) as raised:
            stepscope.open(f"{self.url}/absent.trace.json?sig=secret")
        self.assertIn(f"cannot read {self.url}/absent.trace.json", str(raised.exception))
        self.assertNotIn("secret", str(raised.exception))

    def test_urls_that_name_nothing_are_refused(self) -> None:
        for url in ("s3://../x", "gs://", "https:///x"):
            with self.assertRaises(stepscope.TraceReadError) as raised:
                stepscope.open(url)
            self.assertIn("help: ", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
