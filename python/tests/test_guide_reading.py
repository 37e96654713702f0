import contextlib
import importlib.util
import io
import os
import re
import tempfile
import unittest
from pathlib import Path

import stepscope

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "reading.md"
BLOCK = re.compile(r"(?:<!-- needs (?P<needs>[^>]*) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


class Guide(unittest.TestCase):
    def test_examples_of_the_guide_run(self):
        if not GUIDE.exists():
            self.skipTest("not in a checkout")
        names, run = {}, 0
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
            with stepscope.trace(Path(folder, "logs")):
                for n in range(3):
                    with stepscope.StepTrace("train", step_num=n), stepscope.Trace("forward", rows=n):
                        sorted(range(10))
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            for block in BLOCK.finditer(GUIDE.read_text()):
                needs = (block["needs"] or "").replace(",", " ").split()
                missing = [package for package in needs if not importlib.util.find_spec(package)]
                if missing:
                    with self.subTest(code=block["code"]):
                        self.skipTest(f"{', '.join(missing)} is not installed")
                else:
                    exec(compile(block["code"], str(GUIDE), "exec"), names)
                    run += 1
            os.chdir(before)
        self.assertGreaterEqual(run, 5)
        self.assertIn("train", out.getvalue())


if __name__ == "__main__":
    unittest.main()
