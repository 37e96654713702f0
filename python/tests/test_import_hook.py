"""Code of ours that runs after a module has been imported, whatever imports it, and when."""

import contextlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from pathlib import Path

from stepscope import _import_hook
from stepscope._import_hook import expect, import_after


class ImportHook(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        self.calls = []

    def module(self, name, text=""):
        """Write a module, which is forgotten after the test."""
        (self.folder / f"{name}.py").write_text(textwrap.dedent(text))
        self.addCleanup(sys.modules.pop, name, None)
        self.addCleanup(_import_hook._awaited.pop, name, None)
        self.addCleanup(_import_hook._executed.discard, name)
        return name

    def test_ours_runs_once_after_the_import(self):
        name = self.module("awaited_once", "value = 1\n")
        import_after(name, lambda: self.calls.append(sys.modules[name].value))
        self.assertEqual(self.calls, [])
        __import__(name)
        __import__(name)
        self.assertEqual(self.calls, [1])
        self.assertNotIn("_import_hook", type(sys.modules[name].__spec__.loader).__module__)

    def test_ours_runs_at_once_for_an_imported_module(self):
        name = self.module("awaited_late")
        __import__(name)
        import_after(name, lambda: self.calls.append("late"))
        self.assertEqual(self.calls, ["late"])

    def test_ours_may_await_the_same_module(self):
        name = self.module("awaited_twice")
        import_after(name, lambda: import_after(name, lambda: self.calls.append("inner")))
        __import__(name)
        self.assertEqual(self.calls, ["inner"])

    def test_an_expected_import_that_runs_on_another_thread_is_seen(self):
        begun, release = threading.Event(), threading.Event()
        name = self.module("awaited_elsewhere", "import sys\nsys.begun_import()\n")
        sys.begun_import = lambda: (begun.set(), release.wait(60))
        self.addCleanup(delattr, sys, "begun_import")
        expect(name)
        thread = threading.Thread(target=__import__, args=(name,))
        thread.start()
        self.assertTrue(begun.wait(60))
        import_after(name, lambda: self.calls.append(threading.current_thread()))
        self.assertEqual(self.calls, [])
        release.set()
        thread.join()
        self.assertEqual(self.calls, [thread])

    def test_ours_runs_after_an_import_that_failed_first(self):
        name = self.module("awaited_failing", "import sys\nif sys.fails_import:\n    raise ValueError\n")
        self.addCleanup(delattr, sys, "fails_import")
        import_after(name, lambda: self.calls.append("imported"))
        sys.fails_import = True
        with contextlib.suppress(ValueError):
            __import__(name)
        self.assertEqual(self.calls, [])
        sys.fails_import = False
        __import__(name)
        self.assertEqual(self.calls, ["imported"])

    def test_finder_goes_when_nothing_is_awaited(self):
        program = """\
            import sys
            from stepscope import _import_hook
            for name in list(_import_hook._awaited):
                __import__("asyncio.tasks") if name == "asyncio.tasks" else _import_hook._awaited.pop(name)
            print(_import_hook._finder in sys.meta_path)
            """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.stdout, "False\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
