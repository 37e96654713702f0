"""
Lets `stepscope run` record this interpreter.

Python imports `sitecustomize` when it starts. The command puts the folder of this file in front of
PYTHONPATH; the environment's own `sitecustomize`, if it has one, runs as without it. The file is also valid
in versions of Python that cannot be recorded.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# Interpreters of `multiprocessing` and of torch that run no code of the program.
_HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.semaphore_tracker",
    "_inductor/compile_worker",
)


class _PackageFinder:
    """Finds the package `stepscope` of the command, for environments that have none."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        folder = os.environ.get("STEPSCOPE_PACKAGE")
        if fullname != "stepscope" or not folder:
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(folder, "__init__.py")
        return spec_from_file_location(fullname, file, submodule_search_locations=[folder])


def _note(text):
    """Print a line to stderr, once per run of the command."""
    try:
        os.close(os.open(os.path.join(_HERE, "noted"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return
    sys.stderr.write("stepscope: " + text + "\n")


def _begin():
    if sys.version_info < (3, 10):
        _note("cannot record this program: it runs in Python %d.%d, not 3.10 or newer" % sys.version_info[:2])
        return
    line = " ".join(sys.orig_argv[1:4]).replace("\\", "/")
    if any(helper in line for helper in _HELPERS):
        return
    sys.meta_path.append(_PackageFinder)
    try:
        from stepscope.recording import _program
    except ImportError as error:
        _note(
            "cannot record this program: %s\nhelp: install the package: %s -m pip install stepscope"
            % (error, sys.executable)
        )
        return
    _program.begin(_HERE, _note)


def _run_theirs():
    """Run the `sitecustomize` that the interpreter would have imported."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    # `site` has filled this for this folder.
    sys.path_importer_cache.pop(_HERE, None)
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


try:
    _run_theirs()
finally:
    try:
        _begin()
    except Exception as error:
        _note("cannot record this program: %s: %s" % (type(error).__name__, error))
