import importlib
import re
import tempfile
import unittest
from pathlib import Path

import stepscope
from stepscope import read

# `stepscope.lightning.SimpleProfiler` in a line of code.
NAME = re.compile(r"\bstepscope((?:\.[A-Za-z_]\w*)+)")


def exists(path):
    found = stepscope
    for at, part in enumerate(path):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(["stepscope", *path[: at + 1]]))
            except ImportError:
                return False
    return True


class Advice(unittest.TestCase):
    def test_advice_names_existing_options(self):
        """Where nothing was recorded, the line that would record it can be copied into a program."""
        with tempfile.TemporaryDirectory() as folder:
            options = stepscope.ProfileOptions(python_tracer_level=0)
            with stepscope.trace(folder, options=options, sources=[]):
                pass
            run = stepscope.open(Path(folder)).runs[0]
            advised = []
            for kind in read.report_kinds():
                for by in [None, *kind.by]:
                    report = run.report(kind.name, by=by)
                    texts = [*report.notes, (report.missing or {}).get("fix", "")]
                    advised += NAME.findall("\n".join(texts))
        self.assertGreater(len(advised), 5)
        for name in set(advised):
            with self.subTest(name=name):
                self.assertTrue(exists(name[1:].split(".")))


if __name__ == "__main__":
    unittest.main()
