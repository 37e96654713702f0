"""Spans in other tools: a small tool of both protocols logs its calls."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from recorded import run_python

import stepscope

SOURCE = Path(__file__).parents[2] / "tests/mirrors/tool.c"

VERBS = """
    import stepscope

    def verbs():
        with stepscope.Trace("outer", rows=3):
            with stepscope.StepTrace("train", step_num=7):
                stepscope.instant("at")
                stepscope.counter("loss", 0.5)
        again = stepscope.Trace("again")
        with again, again:
            pass

        @stepscope.annotate_function
        def decorated():
            return len("x")

        decorated()
"""

NVTX = [
    "nvtx push|stepscope|outer|",
    "nvtx push|stepscope|train|7",
    "nvtx mark|stepscope|at|",
    "nvtx mark|stepscope|loss|0.5",
    "nvtx pop|stepscope||",
    "nvtx pop|stepscope||",
    "nvtx push|stepscope|again|",
    "nvtx push|stepscope|again|",
    "nvtx pop|stepscope||",
    "nvtx pop|stepscope||",
]


def compiler():
    return shutil.which("cc") if SOURCE.exists() else None


@unittest.skipUnless(compiler(), "no C compiler, or not in a checkout")
class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.tool = cls.folder / "libtool.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.tool, SOURCE, "-ldl"], check=True)

    def printed_by(self, code, **environment):
        """Run a program and return the calls that the tool logged."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        environment = {"MIRROR_TOOL_LOG": str(log), "LOGS": str(self.folder / "logs"), **environment}
        with mock.patch.dict(os.environ, environment):
            done = run_python(VERBS + code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = log.read_text().splitlines() if log.exists() else []
        return [
            line.rsplit("|", 1)[0] for line in lines if "register" not in line and "itt string" not in line
        ]

    def nvtx(self, code, **environment):
        return self.printed_by(code, NVTX_INJECTION64_PATH=str(self.tool), **environment)

    def test_environment_variable_mirrors_without_a_session(self):
        told = self.nvtx("\n    verbs()\n    assert not stepscope.is_recording()", STEPSCOPE_MIRROR="nvtx")
        self.assertEqual(told[: len(NVTX)], NVTX)
        self.assertEqual(len(told), len(NVTX) + 2)
        self.assertIn("decorated", told[len(NVTX)])

    def test_set_mirror_turns_mirroring_on_and_off(self):
        code = """
    verbs()
    stepscope.set_mirror("nvtx")
    with stepscope.Trace("on"):
        stepscope.set_mirror("")
    verbs()
    """
        self.assertEqual(self.nvtx(code), ["nvtx push|stepscope|on|", "nvtx pop|stepscope||"])

    def test_session_option_mirrors_spans(self):
        code = """
    import os
    options = stepscope.ProfileOptions(mirror="nvtx")
    with stepscope.trace(os.environ["LOGS"], options=options, sources=[]) as recording:
        verbs()
    verbs()
    assert recording.report.spans > 5, recording.report
    """
        told = self.nvtx(code)
        # Not the calls, which are recorded as well.
        self.assertEqual(len(told), len(NVTX) + 2)
        self.assertEqual(told[: len(NVTX)], NVTX)

    def test_spans_are_mirrored_to_itt(self):
        told = self.printed_by("\n    verbs()", STEPSCOPE_MIRROR="itt", INTEL_LIBITTNOTIFY64=str(self.tool))
        self.assertEqual(
            told[:7],
            [
                "itt begin|stepscope|outer|",
                "itt begin|stepscope|train|",
                "itt metadata|stepscope|step_num|7",
                "itt mark|stepscope|at|",
                "itt counter||loss|0.5",
                "itt end|stepscope||",
                "itt end|stepscope||",
            ],
        )


class Errors(unittest.TestCase):
    def test_invalid_mirror_names_are_errors(self):
        with self.assertRaisesRegex(ValueError, "no mirror 'nvtz'\nhelp: did you mean 'nvtx'"):
            stepscope.ProfileOptions(mirror="itt,nvtz")
        with self.assertRaisesRegex(ValueError, "no mirror 'vtune'"):
            stepscope.set_mirror("vtune")
        with self.assertRaises(TypeError):
            stepscope.ProfileOptions(mirror=1)
        self.assertEqual(stepscope.ProfileOptions(mirror="nvtx,itt").mirror, "nvtx,itt")

    def test_missing_tool_is_a_warning(self):
        code = """
    import warnings
    import stepscope

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stepscope.set_mirror("nvtx,itt")
    texts = [str(one.message) for one in caught]
    assert len(texts) == 2, texts
    assert "nsys profile" in texts[0] and "vtune" in texts[1], texts
    with stepscope.Trace("x"):
        pass
    """
        done = run_python(code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
