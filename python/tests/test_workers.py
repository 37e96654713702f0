"""Worker processes of `multiprocessing`: recorded into the run of the program that starts them."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import xspace
from recorded import files

import stepscope

METHODS = ("fork", "spawn", "forkserver")
BEGIN = """\
import concurrent.futures, multiprocessing, os, signal, subprocess, sys, time
import stepscope

LOGS, METHOD = sys.argv[1:3]
CONTEXT = multiprocessing.get_context(METHOD)


def start(**options):
    options.setdefault("python_tracer_level", 0)
    stepscope.start_trace(LOGS, options=stepscope.ProfileOptions(**options))


def work(number):
    with stepscope.Trace("work", number=number):
        return os.getpid()


def until(condition):
    deadline = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
"""


class Program:
    """A program that was run, and what it recorded."""

    def __init__(self, code, *arguments, expected=0, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"
            program.write_text(BEGIN + code)
            logs = Path(folder) / "logs"
            done = subprocess.run(
                [sys.executable, "-W", "ignore::DeprecationWarning", program, logs, *arguments],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
            )
            if (done.returncode, done.stderr) != (expected, ""):
                raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
            self.output = done.stdout.split()
            self.left = sorted(path.name for path in logs.glob("plugins/profile/*/.*"))
            try:
                runs = list(stepscope.open(logs, use_cache=False))
            except stepscope.TraceNotFoundError:
                runs = []
            self.runs = len(runs)
            self.warnings = {warning.code for run in runs for warning in run.warnings}
            self.messages = [str(warning) for run in runs for warning in run.warnings]
            self.reports = [{kind: run.report(kind) for kind in ("overview", "input")} for run in runs]
            written = {path: xspace.read(path) for path in files(logs)}
        self.workers = {
            one.stats["process_name"]: one for one in written.values() if "process_name" in one.stats
        }
        self.others = [one for one in written.values() if "process_name" not in one.stats]
        self.names = {path.name for path in written}


@unittest.skipUnless(sys.platform == "linux", "journals of other processes")
class Workers(unittest.TestCase):
    def each_method(self, code, check):
        for method in METHODS:
            with self.subTest(method=method):
                check(Program(code, method))

    def test_workers_of_pools_and_executors_are_files_of_the_run(self):
        code = """
if __name__ == "__main__":
    start()
    with CONTEXT.Pool(2) as pool:
        found = pool.map(work, range(6), chunksize=1)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=CONTEXT) as executor:
        found += executor.map(work, range(6))
    with stepscope.Trace("of the program"):
        pass
    report = stepscope.stop_trace()
    assert report.warnings == (), report.warnings
    print(*sorted(set(found)))
"""

        def check(program):
            self.assertEqual(program.runs, 1)
            (parent,) = program.others
            self.assertEqual(parent.names(), {"of the program"})
            found = program.workers
            self.assertEqual({str(one.stats["process_id"]) for one in found.values()}, set(program.output))
            self.assertEqual(sum(len(one.named("work")) for one in found.values()), 12)
            parent_id = str(parent.stats["process_id"])
            self.assertEqual({str(one.stats["worker_of_process"]) for one in found.values()}, {parent_id})
            self.assertTrue(any("PoolWorker-" in name for name in found), found)
            self.assertTrue(any("Process-" in name for name in found), found)
            for name, one in found.items():
                mine = f"_{name}_{one.stats['process_id']}."
                self.assertEqual(len([file for file in program.names if mine in file]), 1)
            self.assertEqual((program.left, program.warnings), ([], set()))

        self.each_method(code, check)

    def test_workers_that_outlive_the_stop_are_recorded_up_to_it(self):
        code = """
def more(_):
    from stepscope.recording._recorder import State, recorder
    # The tracers stop a little later: when the worker runs Python again.
    until(lambda: not (stepscope.is_recording() or recorder.state is State.WORKER))
    work(2)
    assert sys.getprofile() is None
    return os.getpid()

if __name__ == "__main__":
    start(python_tracer_level=1)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=CONTEXT) as executor:
        before = executor.submit(work, 1).result()
        stepscope.stop_trace()
        print(before, executor.submit(more, 2).result())
"""

        def check(program):
            (worker,) = program.workers.values()
            self.assertEqual([one.stats["number"] for one in worker.named("work")], [1])
            self.assertEqual(program.output, [str(worker.stats["process_id"])] * 2)
            self.assertEqual(program.left, [])

        self.each_method(code, check)

    def test_killed_workers_are_in_the_run(self):
        code = """
def child(here):
    work(1)
    with stepscope.Trace("open"):
        here.send(os.getpid())
        time.sleep(100)

if __name__ == "__main__":
    start()
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=child, args=(there,), name="loads images")
    process.start()
    here.recv()
    process.kill()
    process.join()
    report = stepscope.stop_trace()
    assert report.warnings == (), report.warnings
"""

        def check(program):
            worker = program.workers["loads images"]
            self.assertEqual(worker.names(), {"work", "open"})
            self.assertTrue(
                any(f"_loads-images_{worker.stats['process_id']}." in name for name in program.names)
            )
            # That is how pools end their workers: nothing to warn of.
            self.assertEqual((program.left, program.warnings), ([], {"empty-trace", "unfinished-slice"}))

        self.each_method(code, check)

    def test_workers_keep_the_disk_limits_of_their_program(self):
        code = """
def child():
    for number in range(200):
        with stepscope.Trace("kept", number=number):
            for _ in range(500):
                with stepscope.Trace("many"):
                    pass
        # Buffers never fill up.
        assert stepscope.flush_trace() or LIMIT == "stop"

LIMIT = sys.argv[3]
if __name__ == "__main__":
    warnings.simplefilter("ignore")
    start(max_bytes=1 << 20, keep_free_bytes=0, at_limit=LIMIT)
    process = CONTEXT.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    (warning,) = stepscope.stop_trace().warnings
    print(warning)
"""
        for limit, expected in (("keep_latest", 199), ("stop", 0)):
            for method in METHODS:
                with self.subTest(method=method, limit=limit):
                    # A worker prints nothing: `Program` looks at the standard error.
                    program = Program("import warnings\n" + code, method, limit)
                    (worker,) = program.workers.values()
                    numbers = [event.stats["number"] for event in worker.named("kept")]
                    self.assertIn(expected, numbers)
                    self.assertLess(len(numbers), 150)
                    self.assertIn("worker", program.output)
                    self.assertIn("(max_bytes,", program.output)
                    self.assertIn("limit of 1 MiB (max_bytes)", str(program.messages))

    def test_ended_worker_leaves_a_small_journal(self):
        code = """
def disk(path):
    return sum(os.stat(os.path.join(path, name)).st_blocks * 512 for name in os.listdir(path))

if __name__ == "__main__":
    start()
    process = CONTEXT.Process(target=work, args=(1,))
    process.start()
    process.join()
    (worker,) = glob.glob(LOGS + "/plugins/profile/*/.*.worker-*")
    assert disk(worker) <= 64 << 10, disk(worker)
    stepscope.stop_trace()
"""
        self.each_method("import glob\n" + code, lambda program: self.assertEqual(len(program.workers), 1))

    def test_spawned_worker_without_the_package_works(self):
        code = """
if __name__ == "__mp_main__":
    # As under an interpreter that has no stepscope.
    for name in [name for name in sys.modules if name.partition(".")[0] == "stepscope"]:
        sys.modules[name] = None
if __name__ == "__main__":
    start()
    process = CONTEXT.Process(target=print, args=("done",))
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode
    stepscope.stop_trace()
"""

        for method in ("spawn", "forkserver"):
            with self.subTest(method=method):
                program = Program(code, method)
                self.assertEqual((program.output, program.workers), (["done"], {}))

    def test_spawned_worker_is_recorded_after_a_late_import(self):
        code = """
if __name__ == "__mp_main__":
    for name in [name for name in sys.modules if name.partition(".")[0] == "stepscope"]:
        del sys.modules[name]

if __name__ == "__main__":
    start(python_tracer_level=1)
    process = CONTEXT.Process(target=until, args=(os.getpid,))
    process.start()
    process.join()
    stepscope.stop_trace()
"""
        program = Program(code, "spawn")
        (worker,) = program.workers.values()
        self.assertTrue(any(name.endswith(" until") for name in worker.names()))

    def test_worker_without_events_leaves_no_file(self):
        code = """
if __name__ == "__main__":
    start()
    process = CONTEXT.Process(target=print)
    process.start()
    process.join()
    stepscope.stop_trace()
"""

        def check(program):
            self.assertEqual((program.workers, len(program.others), program.left), ({}, 1, []))

        self.each_method(code, check)

    def test_workers_of_workers_are_files_of_the_same_run(self):
        code = """
def child():
    work(1)
    process = CONTEXT.Process(target=work, args=(2,), name="inner")
    process.start()
    process.join()

if __name__ == "__main__":
    start()
    process = CONTEXT.Process(target=child, name="outer")
    process.start()
    process.join()
    stepscope.stop_trace()
"""

        def check(program):
            numbers = {
                name: [event.stats["number"] for event in one.named("work")]
                for name, one in program.workers.items()
            }
            self.assertEqual(numbers, {"outer": [1], "inner": [2]})
            self.assertEqual((program.runs, program.left), (1, []))

        self.each_method(code, check)

    def test_killed_program_ends_the_recordings_of_its_workers(self):
        code = """
def child(here, logs):
    work(1)
    here.send(1)
    until(lambda: not stepscope.is_recording())
    open(logs + "/ended", "w").close()

if __name__ == "__main__":
    start()
    here, there = CONTEXT.Pipe()
    CONTEXT.Process(target=child, args=(there, LOGS), name="outlives").start()
    here.recv()
    work(0)
    stepscope.flush_trace()
    if os.fork() == 0:
        # Not the recorded program: what waits for the worker and reports.
        parent = os.getppid()
        os.kill(parent, signal.SIGKILL)
        until(lambda: os.path.exists(LOGS + "/ended"))
        until(lambda: os.getppid() != parent)
        os._exit(0)
    time.sleep(100)
"""
        for method in ("fork", "spawn"):
            with self.subTest(method=method):
                program = Program(code, method, expected=-9)
                self.assertEqual(len(program.workers["outlives"].named("work")), 1)
                self.assertEqual([one.names() for one in program.others], [{"work"}])
                self.assertEqual(len(program.left), 2)

    def test_discard_removes_the_recordings_of_workers(self):
        code = """
if __name__ == "__main__":
    start()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=CONTEXT) as executor:
        executor.submit(work, 1).result()
        stepscope.discard_trace()
    print(*os.listdir(LOGS + "/plugins/profile"))
"""

        def check(program):
            self.assertEqual((program.output, program.runs), ([], 0))

        self.each_method(code, check)

    def test_option_and_environment_turn_worker_recording_off(self):
        code = """
if __name__ == "__main__":
    start(**eval(sys.argv[3]))
    process = CONTEXT.Process(target=work, args=(1,))
    process.start()
    process.join()
    stepscope.stop_trace()
"""
        off = {"STEPSCOPE_RECORD_WORKERS": "0"}
        for options, environment in (
            ("{}", off),
            ("{'record_workers': False}", {}),
            ("{'crash_safe': False}", {}),
        ):
            for method in METHODS:
                with self.subTest(method=method, options=options):
                    program = Program(code, method, options, environment=environment)
                    self.assertEqual((program.workers, len(program.others)), ({}, 1))

    def test_workers_are_recorded_only_while_the_program_is(self):
        code = """
def child(expected):
    assert stepscope.is_recording() == expected

def ends(expected):
    process = CONTEXT.Process(target=child, args=(expected,))
    process.start()
    process.join()
    assert process.exitcode == 0

if __name__ == "__main__":
    ends(False)
    early = CONTEXT.Process(target=child, args=(METHOD == "fork",))
    start()
    late = CONTEXT.Process(target=child, args=(False,))
    early.start()
    early.join()
    assert early.exitcode == 0
    ends(True)
    # Programs that are no workers, whatever they import.
    code = "import stepscope; assert not stepscope.is_recording()"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    stepscope.stop_trace()
    late.start()
    late.join()
    assert late.exitcode == 0
    ends(False)
    start()
    ends(True)
    stepscope.stop_trace()
"""

        def check(program):
            self.assertEqual(len(program.others), 2)

        self.each_method(code, check)

    def test_worker_with_its_own_recording_is_left_alone(self):
        code = """
def child():
    work(1)
    try:
        stepscope.stop_trace()
    except stepscope.NoSessionError:
        work(2)
    stepscope.start_trace(LOGS + "/own", options=stepscope.ProfileOptions(python_tracer_level=0))
    work(3)
    print(stepscope.stop_trace().spans, stepscope.is_recording(), flush=True)

if __name__ == "__main__":
    start()
    process = CONTEXT.Process(target=child)
    process.start()
    process.join()
    stepscope.stop_trace()
"""

        def check(program):
            (worker,) = program.workers.values()
            self.assertEqual([one.stats["number"] for one in worker.named("work")], [1, 2])
            self.assertEqual(program.output, ["1", "False"])

        self.each_method(code, check)

    def test_calls_are_traced_in_workers_as_in_the_program(self):
        code = """
def child():
    return work(1)

if __name__ == "__main__":
    start(python_tracer_level=1, host_tracer_level=int(sys.argv[3]))
    process = CONTEXT.Process(target=child)
    process.start()
    process.join()
    stepscope.stop_trace()
"""
        for level in ("2", "0"):
            for method in METHODS:
                with self.subTest(method=method, level=level):
                    program = Program(code, method, level)
                    (worker,) = program.workers.values()
                    self.assertTrue(any(name.endswith(" child") for name in worker.names()))
                    self.assertEqual("work" in worker.names(), level == "2")

    def test_step_report_uses_the_steps_of_the_program_only(self):
        code = """
if __name__ == "__main__":
    start()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=CONTEXT) as executor:
        for step in range(8):
            with stepscope.StepTrace("train", step_num=step):
                with stepscope.Trace("load"):
                    executor.submit(work, step).result()
                with stepscope.Trace("compute"):
                    sum(range(1000))
    stepscope.stop_trace()
"""
        program = Program(code, "fork", environment={"RANK": "3", "WORLD_SIZE": "4"})
        (reports,) = program.reports
        self.assertEqual(len(program.workers), 1)
        overview, waiting = reports["overview"], reports["input"]
        self.assertEqual((overview.summary["steps"], overview.summary["ranks"]), (8, None))
        self.assertEqual([(stage["name"], stage["count"]) for stage in waiting.table], [("load", 8)])


if __name__ == "__main__":
    unittest.main()
