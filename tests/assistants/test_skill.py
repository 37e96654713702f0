"""
Tests of the skill that `stepscope skill` writes: its commands answer about a run.

    STEPSCOPE_BIN=… [STEPSCOPE_SQL=…] python tests/assistants/test_skill.py [TEST…]

Without `STEPSCOPE_SQL`, the SQL engine, the commands that need it are not run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ["STEPSCOPE_BIN"]
SQL = os.environ.get("STEPSCOPE_SQL")
CAUSES = ROOT / "tests/data/known_causes"
PATHS = {
    "RUN": str(CAUSES / "torch_one_slow_batch"),
    "BASE": str(CAUSES / "torch_healthy_bf16"),
    "NEW": str(CAUSES / "torch_fp32_products"),
    "LOGDIR": str(CAUSES / "torch_one_slow_batch"),
}
# They record, or look at the machine.
NOT_OF_A_RUN = ("doctor", "run")
OF_SQL = ("query", "export", "fleet")


def commands(path: Path) -> list[list[str]]:
    """The words of the commands in a page's shell blocks, a command a line."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words]


class Skill(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_DATA_HOME": str(self.folder / "data"),
        }
        if SQL:
            self.environment["STEPSCOPE_SQL"] = SQL
        self.assertEqual(self.run_command(["skill", "skills"]).stderr, "")

    def run_command(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        command = [BINARY, *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def check(self, page: str) -> int:
        """Runs the commands of a page; returns how many."""
        count = 0
        for words in commands(self.folder / "skills/stepscope" / page):
            name = words[0]
            if name in NOT_OF_A_RUN or (name in OF_SQL and not SQL):
                continue
            with self.subTest(command=shlex.join(words)):
                answer = self.run_command([PATHS.get(word, word) for word in words])
                self.assertEqual(answer.returncode, 0, answer.stderr)
                if "json" in words or "--json" in words:
                    content = json.loads(answer.stdout)
                    if name == "report":
                        self.assertEqual(content["report"], words[2])
            count += 1
        return count

    def test_commands_of_the_skill_answer(self) -> None:
        self.assertGreaterEqual(self.check("SKILL.md"), 8)

    def test_commands_of_the_examples_answer(self) -> None:
        self.assertGreaterEqual(self.check("references/examples.md"), 10)


if __name__ == "__main__":
    unittest.main()
