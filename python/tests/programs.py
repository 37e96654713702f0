"""Programs that `stepscope run` records in tests, and stand-ins for the frameworks that they import."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import xspace

# A stand-in for torch: an optimizer with torch's global hooks, and a module with its forward hook.
TORCH = {
    "torch/__init__.py": """\
        from torch import optim
        from torch.nn import modules
        from torch.utils import data
        """,
    "torch/optim/__init__.py": "from torch.optim.optimizer import SGD\n",
    "torch/optim/optimizer.py": """\
        _post_hooks = {}

        def register_optimizer_step_post_hook(hook):
            _post_hooks[len(_post_hooks)] = hook
            return object()

        class Optimizer:
            def __init__(self):
                def step(self, inner=type(self).step):
                    inner(self)
                    for hook in _post_hooks.values():
                        hook(self, (), {})

                if not getattr(type(self).step, "hooked", False):
                    type(self).step = step
                    type(self).step.hooked = True

        class SGD(Optimizer):
            def step(self):
                pass
        """,
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "from torch.utils.data.dataloader import DataLoader\n",
    "torch/utils/data/dataloader.py": """\
        class _BaseDataLoaderIter:
            def __init__(self, batches):
                self._batches = iter(batches)

            def __iter__(self):
                return self

            def __next__(self):
                return next(self._batches)

        class DataLoader:
            def __init__(self, batches):
                self.batches = batches

            def __iter__(self):
                return _BaseDataLoaderIter(self.batches)
        """,
    "torch/nn/__init__.py": "",
    "torch/nn/modules/__init__.py": "from torch.nn.modules import module\n",
    "torch/nn/modules/module.py": """\
        class Handle:
            def remove(self):
                hooks.clear()

        hooks = []

        def register_module_forward_pre_hook(hook):
            hooks.append(hook)
            return Handle()
        """,
}


class ProgramTest(unittest.TestCase):
    """A folder with programs, and the files of their runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.logs = self.folder / "logs"

    def write(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def run_program(self, *command, options=(), **variables):
        """Run a program with the command, in the folder."""
        return subprocess.run(
            [sys.executable, "-m", "stepscope", "run", "--logdir", self.logs, *options, "--", *command],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), **variables},
        )

    def files(self):
        return sorted(self.logs.glob("plugins/profile/*/*.xplane.pb"))

    def names(self):
        """Names of all events of the only file."""
        (file,) = self.files()
        return [event.name for event in xspace.read(file).events]
