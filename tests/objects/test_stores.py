"""
Tests of URLs as paths, against emulators of the object stores on this machine.

    STEPSCOPE_BIN=… STEPSCOPE_SQL=… STEPSCOPE_SERVE=… [STEPSCOPE_AZURITE=…] \\
        python tests/objects/test_stores.py [TEST…]

S3 is played by moto. Google Cloud Storage speaks nearly the same protocol: a proxy translates between the two.
`STEPSCOPE_SERVE` is a program that serves captures. `STEPSCOPE_AZURITE` names the program `azurite-blob`, which
plays Azure; without it, Azure is not tested.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import logging
import os
import re
import subprocess
import tempfile
import threading
import unittest
import urllib.request
from email.utils import formatdate
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ["STEPSCOPE_BIN"]
SERVE = os.environ["STEPSCOPE_SERVE"]
AZURITE = os.environ.get("STEPSCOPE_AZURITE")
SLOW = ROOT / "tests/data/known_causes/torch_one_slow_batch"
ACCOUNT = "devstoreaccount1"
# The key that every emulator of Azure has.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def traces() -> dict[str, bytes]:
    """The objects of the tests, by name."""
    found = {}
    for folder in (ROOT / "tests/data/example", SLOW):
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                found[f"logs/{folder.name}/{file.relative_to(folder)}"] = file.read_bytes()
    found["logs/checkpoint/weights 1+ü.bin"] = b"no trace"
    return found


class Store:
    """What the tests need of a store; `url` begins the names of its objects."""

    url: ClassVar[str]
    home: ClassVar[tempfile.TemporaryDirectory[str]]
    environment: ClassVar[dict[str, str]]

    @classmethod
    def put(cls, key: str, content: bytes) -> None:
        raise NotImplementedError

    @classmethod
    def prepare(cls, environment: dict[str, str]) -> None:
        cls.home = tempfile.TemporaryDirectory()
        clouds = ("AWS_", "GOOGLE_", "AZURE_", "CLOUDSDK_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(clouds)}
        own = {"HOME": cls.home.name, "XDG_CACHE_HOME": f"{cls.home.name}/cache", "NO_PROXY": "127.0.0.1"}
        cls.environment = kept | own | environment
        for key, content in traces().items():
            cls.put(key, content)

    def run_command(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [BINARY, *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}: {done.stderr}"
        return done.stderr if code else done.stdout

    def info(self, path: str) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(self.run_command("info", path, "--json"))
        return info

    def test_a_folder_is_what_its_copy_is(self: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for key, content in traces().items():
                file = Path(folder, key)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            here = self.info(f"{folder}/logs")
        for url in (f"{self.url}/logs", f"{self.url}/logs/"):
            there = self.info(url)
            self.assertGreaterEqual(len(here["runs"]), 2)
            self.assertEqual((there["errors"], there["problems"]), ([], []))
            facts = [
                [
                    (run["id"], run["name"], run["slices"], run["content_hash"], len(run["files"]))
                    for run in side["runs"]
                ]
                for side in (here, there)
            ]
            self.assertEqual(facts[0], facts[1])
            for run in there["runs"]:
                for file in run["files"]:
                    self.assertTrue(file["path"].startswith(f"{self.url}/logs/"), file["path"])

    def test_a_single_object_is_reported_and_converted(self: Any) -> None:
        file = next(file for file in sorted(SLOW.rglob("*")) if ".json" in file.name)
        url = f"{self.url}/logs/{SLOW.name}/{file.relative_to(SLOW)}"
        rows = [
            json.loads(self.run_command("report", path, "steps", "--format", "json"))["rows"]
            for path in (url, str(file))
        ]
        self.assertEqual(rows[0], rows[1])
        out = Path(self.home.name, "out.pftrace")
        self.run_command("convert", url, str(out))
        self.assertGreater(out.stat().st_size, 1_000)
        compared = self.run_command("compare", str(file), url, "--format", "json")
        self.assertEqual(json.loads(compared)["comparability"], "full")

    def test_an_object_that_changes_is_fetched_again(self: Any) -> None:
        event = '{"ph":"X","name":"work","pid":1,"tid":2,"ts":%d,"dur":4}'
        key = "changing/a.trace.json"
        for count in (1, 2):
            events = ",".join(event % (at * 10) for at in range(count))
            self.put(key, f'{{"traceEvents":[{events}]}}'.encode())
            info = self.info(f"{self.url}/{key}")
            self.assertEqual(info["runs"][0]["slices"], count)

    def test_more_objects_than_a_page_holds_are_listed(self: Any) -> None:
        for run in range(1_100):
            self.put(f"many/{run:04}.trace.json", b'{"traceEvents":[]}')
        with Viewer(self, f"{self.url}/many") as viewer:
            page = viewer.get("/api/v1/runs?limit=2000")
            names = {run["name"] for run in page["runs"]}
            while page.get("next"):
                page = viewer.get(f"/api/v1/runs?limit=2000&cursor={quote(page['next'])}")
                names |= {run["name"] for run in page["runs"]}
        self.assertEqual(len(names), 1_100)

    def rows(self, dataset: str, sql: str) -> Any:
        return json.loads(self.run_command("query", dataset, sql, "--format", "json"))["rows"]

    def test_a_dataset_is_written_asked_and_extended(self: Any) -> None:
        # All emulators of S3 in a process have the same objects.
        source, dataset = f"{self.url}/logs", f"{self.url}/dataset-{type(self).__name__}"
        here = f"{self.home.name}/dataset-{type(self).__name__}"
        self.run_command("export", source, here)
        self.run_command("export", source, dataset, "--run", f"{SLOW.name}/trace/train.pt.trace.json.gz")
        first = self.rows(dataset, "SELECT count(*) AS n FROM runs")[0]["n"]
        self.assertGreater(first, 0)
        # The runs that are missing are added.
        self.run_command("export", source, dataset)
        # Of the bucket, only the tables that the reports read are here.
        for kind in ("hosts", "runs", "collectives", "steps"):
            sides = [self.run_command("fleet", of, kind, "--format", "json") for of in (dataset, here)]
            self.assertEqual(*(json.loads(side)["rows"] for side in sides), kind)
        for sql in (
            "SELECT name, slices FROM runs ORDER BY name",
            "SELECT name, count(*) AS n, sum(dur_ps) AS ps FROM slices GROUP BY name ORDER BY ps DESC, name LIMIT 9",
            "SELECT r.name, count(*) AS n FROM steps s JOIN runs r ON s.run = r.run GROUP BY r.name ORDER BY r.name",
        ):
            self.assertEqual(self.rows(dataset, sql), self.rows(here, sql), sql)
        self.assertGreater(self.rows(dataset, "SELECT count(*) AS n FROM runs")[0]["n"], first)
        error = self.run_command("fleet", source, code=1)
        self.assertIn("it is no dataset", error)

    def test_a_capture_and_a_converted_trace_become_objects(self: Any) -> None:
        captures = f"{self.url}/captures-{type(self).__name__}"
        # It ends when its input does, also if the test fails.
        with subprocess.Popen(
            [SERVE, "--port", "0", "--until-eof"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        ) as served:
            assert served.stdout is not None
            port = re.search(r"\d+$", served.stdout.readline().strip())
            assert port is not None
            printed = self.run_command(
                "capture", f"127.0.0.1:{port[0]}", "--logdir", captures, "--duration-ms", "200", "--json"
            )
        path = json.loads(printed)["hosts"][0]["path"]
        self.assertTrue(path.startswith(f"{captures}/plugins/profile/"), path)
        captured = self.info(captures)["runs"]
        self.assertEqual([run["files"][0]["path"] for run in captured], [path])
        out = f"{self.url}/converted/out.pftrace"
        self.assertIn(out, self.run_command("convert", path, out))
        self.assertEqual(self.info(out)["runs"][0]["slices"], captured[0]["slices"])

    def test_what_is_not_there_is_one_line(self: Any) -> None:
        for path in ("absent", "absent/", "absent.xplane.pb"):
            error = self.run_command("info", f"{self.url}/{path}", code=1)
            self.assertRegex(error, rf"\Aerror: cannot read {re.escape(self.url)}/absent[^\n]*\nhelp: [^\n]+\n\Z")


class Viewer:
    """The viewer's server over a URL."""

    def __init__(self, store: Any, url: str) -> None:
        self.process = subprocess.Popen(
            [BINARY, "view", url, "--port", "0"], env=store.environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        found = None
        while found is None:
            line = self.process.stdout.readline()
            assert line, "the server ended"
            found = re.search(r"at (http://\S+?)/ ", line)
        self.address = found[1]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path) as answer:
            return json.load(answer)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class Moto:
    """The emulator of S3."""

    def __init__(self) -> None:
        # A line for each request hides what a failing test prints.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, self.port = self.server.get_host_and_port()
        self.endpoint = f"http://{host}:{self.port}"
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=Config(s3={"addressing_style": "path"}),
        )
        self.client.create_bucket(Bucket="bucket")


class S3(Store, unittest.TestCase):
    url = "s3://bucket"
    moto: ClassVar[Moto]

    @classmethod
    def setUpClass(cls) -> None:
        cls.moto = Moto()
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        cls.prepare({"AWS_ENDPOINT_URL": cls.moto.endpoint, **keys})

    @classmethod
    def tearDownClass(cls) -> None:
        cls.moto.server.stop()
        cls.home.cleanup()

    @classmethod
    def put(cls, key: str, content: bytes) -> None:
        cls.moto.client.put_object(Bucket="bucket", Key=key, Body=content)

    def test_a_profile_has_keys_and_endpoint(self) -> None:
        folder = Path(self.home.name, ".aws")
        folder.mkdir()
        keys = "aws_access_key_id = key\naws_secret_access_key = secret\n"
        (folder / "credentials").write_text(f"[work]\n{keys}", encoding="utf-8")
        config = f"[profile work]\nregion = us-east-1\nendpoint_url = {self.moto.endpoint}\n"
        (folder / "config").write_text(config, encoding="utf-8")
        environment = {name: value for name, value in self.environment.items() if not name.startswith("AWS_")}
        done = subprocess.run(
            [BINARY, "info", "s3://bucket/logs"],
            env=environment | {"AWS_PROFILE": "work"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)


class GoogleProxy(http.server.BaseHTTPRequestHandler):
    """Passes requests of Google's client to moto, which knows another kind of signature."""

    protocol_version = "HTTP/1.1"
    port: ClassVar[int]

    def do_GET(self) -> None:  # noqa: N802 - the base class names it
        self._pass()

    def do_HEAD(self) -> None:  # noqa: N802 - the base class names it
        self._pass()

    def do_PUT(self) -> None:  # noqa: N802 - the base class names it
        self._pass()

    def do_POST(self) -> None:  # noqa: N802 - the base class names it
        self._pass()

    def do_DELETE(self) -> None:  # noqa: N802 - the base class names it
        self._pass()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers["Authorization"] != "Bearer token":
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        scope = "key/20260101/us-east-1/s3/aws4_request"
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=none"
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(self.command, self.path, body=body or None, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Google(Store, unittest.TestCase):
    url = "gs://bucket"
    moto: ClassVar[Moto]
    proxy: ClassVar[http.server.ThreadingHTTPServer]

    @classmethod
    def setUpClass(cls) -> None:
        cls.moto = Moto()
        GoogleProxy.port = int(cls.moto.port)
        cls.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), GoogleProxy)
        threading.Thread(target=cls.proxy.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{cls.proxy.server_port}"
        cls.prepare({"GOOGLE_BASE_URL": base, "GOOGLE_OAUTH_ACCESS_TOKEN": "token"})

    @classmethod
    def tearDownClass(cls) -> None:
        cls.proxy.shutdown()
        cls.proxy.server_close()
        cls.moto.server.stop()
        cls.home.cleanup()

    @classmethod
    def put(cls, key: str, content: bytes) -> None:
        cls.moto.client.put_object(Bucket="bucket", Key=key, Body=content)


@unittest.skipUnless(AZURITE, "STEPSCOPE_AZURITE does not name an emulator of Azure")
class Azure(Store, unittest.TestCase):
    url = "az://bucket"
    process: ClassVar[subprocess.Popen[str]]
    port: ClassVar[int]

    @classmethod
    def setUpClass(cls) -> None:
        assert AZURITE
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", "0"]
        cls.process = subprocess.Popen([AZURITE, *options], stdout=subprocess.PIPE, text=True)
        assert cls.process.stdout is not None
        found = None
        while found is None:
            line = cls.process.stdout.readline()
            assert line, "the emulator ended"
            found = re.search(r"listen\w* \w+ http://127\.0\.0\.1:(\d+)", line)
        cls.port = int(found[1])
        threading.Thread(target=cls.process.stdout.read, daemon=True).start()
        cls.request("?restype=container", "/bucket", b"", {})
        endpoint = f"http://127.0.0.1:{cls.port}"
        cls.prepare({"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint})

    @classmethod
    def tearDownClass(cls) -> None:
        cls.process.kill()
        cls.process.wait()
        cls.home.cleanup()

    @classmethod
    def put(cls, key: str, content: bytes) -> None:
        cls.request("", f"/bucket/{quote(key)}", content, {"x-ms-blob-type": "BlockBlob"})

    @classmethod
    def request(cls, query: str, path: str, content: bytes, more: dict[str, str]) -> None:
        """Send a PUT that is signed with the account's key."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06", **more}
        length = str(len(content)) if content else ""
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        resource = f"/{ACCOUNT}/{ACCOUNT}{path}" + query.replace("?", "\n").replace("=", ":")
        text = f"PUT\n\n\n{length}\n\n\n\n\n\n\n\n\n{lines}{resource}"
        key = base64.b64decode(ACCOUNT_KEY)
        signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        connection = http.client.HTTPConnection("127.0.0.1", cls.port)
        connection.request("PUT", f"/{ACCOUNT}{path}{query}", body=content, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, f"{path}: {answer.status} {answer.read()!r}"


if __name__ == "__main__":
    unittest.main()
