"""Our tab in a real TensorBoard, asked over HTTP through its own port."""

import contextlib
import http.client
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from urllib.parse import quote

import stepscope

PREFIX = "/data/plugin/stepscope"


def installed():
    """Whether TensorBoard finds the plugin by itself."""
    return any(
        point.name == "stepscope" for point in importlib.metadata.entry_points(group="tensorboard_plugins")
    )


class Board:
    """A TensorBoard of its own."""

    def __init__(self, log_dir, *options):
        self.folder = tempfile.mkdtemp()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        if not installed():
            # What an installer writes beside the package.
            notes = Path(self.folder, "stepscope-0.0.0.dist-info")
            notes.mkdir()
            notes.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: stepscope\nVersion: 0.0.0\n")
            notes.joinpath("entry_points.txt").write_text(
                "[tensorboard_plugins]\nstepscope = stepscope.adapters._tensorboard:StepscopePlugin\n"
            )
            package = str(Path(stepscope.__file__).parents[1])
            environment["PYTHONPATH"] = os.pathsep.join([self.folder, package])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", log_dir, "--port", "0", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.said = []
        self.port = None
        threading.Thread(target=self._listen, daemon=True).start()
        end = time.monotonic() + 90
        while self.port is None and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.05)
        if self.port is None:
            self.close()
            raise AssertionError("".join(self.said)[-3000:])

    def _listen(self):
        with contextlib.suppress(ValueError):
            self._lines()

    def _lines(self):
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"http://[^/:]+:(\d+)/", line)
            if found:
                self.port = int(found[1])

    def close(self):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=names)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def json(self, path):
        status, _, body = self.ask(path)
        assert status == 200, (status, body)
        return json.loads(body)


class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        options = stepscope.ProfileOptions(python_tracer_level=0)
        with stepscope.trace(cls.folder, options=options):
            for n in range(3):
                with stepscope.StepTrace("train", step_num=n), stepscope.Trace("forward"):
                    pass
        cls.board = Board(cls.folder)
        cls.addClassCleanup(cls.board.close)

    def test_tab_works_without_tensorflow(self):
        plugins = self.board.json("/data/plugins_listing")
        ours = plugins["stepscope"]
        self.assertTrue(ours["enabled"])
        self.assertEqual(ours["tab_name"], "stepscope")
        self.assertEqual(ours["loading_mechanism"]["type"], "IFRAME")
        self.assertIn("scalars", plugins)
        maps = Path(f"/proc/{self.board.process.pid}/maps").read_text()
        self.assertNotIn("libtensorflow", maps)

    def test_frame_loads_the_viewer(self):
        status, _, page = self.board.ask("/data/plugin_entry.html?name=stepscope")
        self.assertEqual(status, 200)
        self.assertIn(b'import("./index.js")', page)
        status, headers, module = self.board.ask(PREFIX + "/index.js")
        self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, "text/javascript"))
        self.assertIn(b"new URL('app/', import.meta.url)", module)
        status, headers, page = self.board.ask(PREFIX + "/app/")
        self.assertEqual(status, 200)
        self.assertIn("frame-ancestors 'self'", headers["Content-Security-Policy"])
        if b"assets/" not in page:
            self.skipTest("the viewer is not built in")
        for _, name in re.findall(rb'(src|href)="\./(assets/[^"]+)"', page):
            status, headers, content = self.board.ask(f"{PREFIX}/app/{name.decode()}", Accept_Encoding="br")
            self.assertEqual((status, headers["Content-Encoding"]), (200, "br"))
            self.assertGreater(len(content), 1000)
        # In a page further down the same files lie further up.
        _, _, page = self.board.ask(PREFIX + "/app/run/x/timeline")
        self.assertIn(b'="../../assets/', page)

    def test_runs_are_served_through_the_port_of_tensorboard(self):
        # Newest first; another test adds runs.
        (*_, run) = self.board.json(PREFIX + "/app/api/v1/runs")["runs"]
        found = self.board.json(f"{PREFIX}/app/api/v1/runs/{quote(run['id'], safe='')}?wait=20")
        self.assertEqual(found["steps"]["count"], 3)
        status, headers, _ = self.board.ask(
            f"{PREFIX}/app/api/v1/runs/{quote(run['id'], safe='')}/tracks", Accept_Encoding="gzip"
        )
        self.assertEqual(status, 200)
        again = self.board.ask(
            f"{PREFIX}/app/api/v1/runs/{quote(run['id'], safe='')}/tracks", If_None_Match=headers["ETag"]
        )
        self.assertEqual(again[0], 304)
        self.assertEqual(self.board.ask(PREFIX + "/app/api/v1/none")[0], 404)

    def test_server_events_are_streamed(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.board.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", PREFIX + "/app/api/v1/events")
            answer = connection.getresponse()
            self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
            text = b""
            while b"event: hello" not in text:
                text += answer.read1(4096)
            # A new run is told while the stream is open.
            with stepscope.trace(self.folder, options=stepscope.ProfileOptions(python_tracer_level=0)):
                pass
            while b"event: run-added" not in text:
                text += answer.read1(4096)

    def test_writes_are_accepted_from_our_page_only(self):
        (run, *_) = self.board.json(PREFIX + "/app/api/v1/runs")["runs"]
        path = f"{PREFIX}/app/api/v1/runs/{quote(run['id'], safe='')}/notes"
        body = json.dumps({"notes": []})
        _, _, page = self.board.ask(PREFIX + "/app/")
        token = re.search(rb'name="stepscope-token" content="([^"]+)"', page)
        if token is None:
            self.skipTest("the viewer is not built in")
        own = {"Content_Type": "application/json", "X_Stepscope_Token": token[1].decode()}
        host = f"localhost:{self.board.port}"
        for expected, headers in (
            (200, {**own, "Host": host, "Origin": f"http://{host}"}),
            (403, {**own, "Host": host, "Origin": "http://elsewhere"}),
            (403, {**own, "Host": "elsewhere", "Origin": "http://elsewhere"}),
            (403, {"Content_Type": "application/json", "Host": host}),
        ):
            status, _, answer = self.board.ask(path, "PUT", body, **headers)
            self.assertEqual(status, expected, (headers, answer))

    def test_viewer_server_refuses_other_clients(self):
        ports = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.board.process.pid}/net/{table}").read_text().splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                if state == "0A":
                    ports.add(int(local.rpartition(":")[2], 16))
        refused = 0
        for port in ports - {self.board.port}:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/api/v1/runs")
                answer = connection.getresponse()
                if b"stepscope" in answer.read():
                    self.assertEqual(answer.status, 401)
                    refused += 1
        self.assertGreaterEqual(refused, 1)

    def test_tensorboard_logs_no_errors(self):
        self.board.ask(PREFIX + "/app/")
        self.assertNotIn("Content-Security-Policy", "".join(self.board.said))
        self.assertNotIn("Traceback", "".join(self.board.said))


class Browser:
    """A Chromium, driven over two pipes (its DevTools protocol, a NUL after each message)."""

    def __init__(self, program):
        self.home = tempfile.mkdtemp()
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
        # A shell puts the pipes where Chromium looks for them.
        script = f'exec "$0" {flags} --remote-debugging-pipe --user-data-dir="$1" 3<&{read} 4>&{write}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", script, program, self.home],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.home},
        )
        os.close(read)
        os.close(write)
        self._rest = b""
        self._number = 0
        self._session = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {
            "sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        }

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                came = os.read(self._from, 1 << 16)
                assert came, "the browser has ended"
                self._rest += came
            line, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer["result"]

    def until(self, expression, seconds=60):
        """What an expression gives, once it is something."""
        end = time.monotonic() + seconds
        while True:
            found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]
            if found.get("value") or time.monotonic() > end:
                return found.get("value")
            time.sleep(0.2)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self.home, ignore_errors=True)


def chromium():
    """Path of one, or None."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = (shutil.which(name) for name in (os.environ.get("STEPSCOPE_CHROMIUM", ""), *names) if name)
    return next((path for path in found if path), None)


class InABrowser(unittest.TestCase):
    def test_tab_shows_steps_and_timeline(self):
        program = chromium()
        if program is None:
            self.skipTest("no Chromium; name one in STEPSCOPE_CHROMIUM")
        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder, options=stepscope.ProfileOptions(python_tracer_level=0)) as run:
                for n in range(3):
                    with stepscope.StepTrace("train", step_num=n), stepscope.Trace("forward"):
                        time.sleep(0.01)
            with contextlib.closing(Board(folder)) as board, contextlib.closing(Browser(program)) as browser:
                if b"assets/" not in board.ask(PREFIX + "/app/")[2]:
                    self.skipTest("the viewer is not built in")
                browser.call("Page.navigate", url=f"http://localhost:{board.port}/#stepscope")
                # TensorBoard's page has the tab, and in it a frame of its own address.
                frame = "document.querySelector('iframe')?.contentDocument"
                shown = f"({frame}?.body?.innerText ?? '')"
                name = run.report.path.parent.name
                self.assertTrue(
                    browser.until(f"{shown}.includes({json.dumps(name)})"), browser.until(shown, 1)
                )
                tabs = "[...document.querySelectorAll('[role=tab]')].map((tab) => tab.innerText).join()"
                self.assertIn("STEPSCOPE", browser.until(tabs).upper())
                self.assertEqual(browser.until(f"{frame}.title.includes('stepscope')"), True)
                # A click on the run shows its steps, another one its timeline.
                for words, found in (
                    (f"includes({json.dumps(name)})", f"{shown}.includes('Steps take')"),
                    ("trim() === 'Timeline'", f"{frame}.querySelector('canvas')?.width > 0"),
                ):
                    link = f"[...{frame}.querySelectorAll('a')].find((one) => one.innerText.{words})"
                    browser.until(f"({link}.click(), true)")
                    self.assertTrue(browser.until(found), browser.until(shown, 1))
                self.assertNotIn("Traceback", "".join(board.said))


class Elsewhere(unittest.TestCase):
    def test_prefix_and_late_log_directory_work(self):
        with tempfile.TemporaryDirectory() as folder:
            later = Path(folder, "later")
            board = Board(str(later), "--path_prefix", "/board")
            with contextlib.closing(board):
                plugins = board.json("/board/data/plugins_listing")
                self.assertFalse(plugins["stepscope"]["enabled"])
                status, _, text = board.ask("/board" + PREFIX + "/app/")
                self.assertEqual(status, 503)
                self.assertIn(b"later", text)
                with stepscope.trace(later, options=stepscope.ProfileOptions(python_tracer_level=0)):
                    pass
                runs = board.json("/board" + PREFIX + "/app/api/v1/runs")["runs"]
                self.assertEqual(len(runs), 1)
                self.assertTrue(board.json("/board/data/plugins_listing")["stepscope"]["enabled"])


if __name__ == "__main__":
    unittest.main()
