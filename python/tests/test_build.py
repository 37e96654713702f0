"""The build backend, on machines where something is missing."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BACKEND = Path(__file__).parents[1] / "build"

# What maturin would do is not asked here.
MATURIN = """
def get_requires_for_build_wheel(settings=None): return ["from maturin"]
get_requires_for_build_editable = get_requires_for_build_sdist = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel = None
def build_wheel(folder, settings=None, metadata=None): return "built"
build_editable = build_wheel
def build_sdist(folder, settings=None): return "built"
"""


class Backend(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "maturin.py").write_text(MATURIN)
        (self.folder / "ui").mkdir()
        (self.folder / "ui" / "package.json").write_text("{}")
        self.tools = self.folder / "tools"
        self.tools.mkdir()

    def tool(self, name):
        path = self.tools / name
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o755)

    def run_hook(self, call):
        path = os.pathsep.join([str(self.folder), str(BACKEND)])
        return subprocess.run(
            [sys.executable, "-B", "-c", f"import stepscope_build; print(stepscope_build.{call})"],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={"PYTHONPATH": path, "PATH": str(self.tools)},
        )

    def test_build_without_cargo_fails_with_a_help_line(self):
        for call in (
            "get_requires_for_build_wheel()",
            "get_requires_for_build_editable()",
            "get_requires_for_build_sdist()",
            "build_wheel('.')",
            "build_editable('.')",
            "build_sdist('.')",
        ):
            with self.subTest(call=call):
                done = self.run_hook(call)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, r"\Acannot build stepscope: cargo.*\nhelp: install Rust.*\n\Z")

    def test_build_without_node_warns_and_builds(self):
        self.tool("cargo")
        done = self.run_hook("build_wheel('.')")
        self.assertEqual((done.returncode, done.stdout), (0, "built\n"))
        self.assertRegex(done.stderr, "warning: npm is missing.*\nhelp: .*pip install --force-reinstall")

    def test_source_distribution_is_built_without_node(self):
        # It carries the built viewer in place of its sources.
        (self.folder / "ui/package.json").unlink()
        self.tool("cargo")
        done = self.run_hook("build_wheel('.')")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "built\n", ""))

    def test_build_with_cargo_and_node_is_silent(self):
        self.tool("cargo")
        self.tool("npm")
        done = self.run_hook("build_wheel('.')")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "built\n", ""))
        self.assertEqual(self.run_hook("get_requires_for_build_wheel()").stdout, "['from maturin']\n")


if __name__ == "__main__":
    unittest.main()
