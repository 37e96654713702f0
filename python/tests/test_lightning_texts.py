"""Lightning's profilers without Lightning: texts, files, nested actions, timelines."""

import contextlib
import copy
import cProfile
import io
import logging
import os
import pickle
import pstats
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

import xspace
from recorded import files, run_python

import stepscope
from stepscope.lightning import (
    AbstractProfiler,
    AdvancedProfiler,
    BaseProfiler,
    PassThroughProfiler,
    Profiler,
    SimpleProfiler,
)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def numbers(count):
    for n in range(count):
        yield str(n).upper()


class Box:
    def __init__(self):
        self.items = []

    def fill(self, count):
        self.items.extend(numbers(count))
        self.items.sort(key=len)
        return {}.get("x", sum(map(len, self.items)))


def work():
    fib(7)
    even(6)
    Box().fill(12)
    with contextlib.suppress(ValueError):
        int("x")
    return [leaf(n) for n in range(3)]


def leaf(n):
    return abs(-n)


def inner_part():
    fib(5)
    leaf(1)


def counts(stats):
    """What does not depend on time; without the profiler's own calls."""
    found = {}
    for function, (primitive, calls, _, _, callers) in stats.items():
        if "disable" in function[2] or "enable" in function[2]:
            continue
        found[function] = (primitive, calls, {by: entry[:2] for by, entry in callers.items()})
    return found


class Simple(unittest.TestCase):
    def test_extended_report_equals_the_text_of_lightning(self):
        profiler = SimpleProfiler()
        profiler.recorded_durations["load"] = [0.25, 0.5]
        profiler.recorded_durations["[Strategy]Single.training_step"] = [1.5]
        profiler.start_time = 10.0
        with mock.patch("time.perf_counter", return_value=20.0):
            text = profiler.summary()
        across = "-" * 138
        self.assertEqual(
            text.split(os.linesep),
            [
                "Profiler Report",
                "",
                across,
                "|  Action                        \t|  Mean duration (s)\t|  Num calls      \t"
                "|  Total time (s) \t|  Percentage %   \t|",
                across,
                "|  Total                         \t|  -              \t|  3              \t"
                "|  10.0           \t|  100 %          \t|",
                across,
                "|  [Strategy]Single.training_step\t|  1.5            \t|  1              \t"
                "|  1.5            \t|  15.0           \t|",
                "|  load                          \t|  0.375          \t|  2              \t"
                "|  0.75           \t|  7.5            \t|",
                across,
                "",
            ],
        )

    def test_the_plain_text_is_ordered_by_the_mean(self):
        profiler = SimpleProfiler(extended=False)
        profiler.setup("fit")
        profiler.recorded_durations["often"] = [0.125] * 100
        profiler.recorded_durations["once"] = [1.0]
        lines = profiler.summary().split(os.linesep)
        self.assertEqual(lines[0], "FIT Profiler Report")
        self.assertEqual(lines[3], "|  Action\t|  Mean duration (s)\t|  Total time (s) \t|")
        self.assertEqual(lines[5], "|  once \t|  1.0            \t|  1.0            \t|")
        self.assertEqual(lines[6], "|  often\t|  0.125          \t|  12.5           \t|")
        self.assertEqual(len(lines[2]), len((os.linesep + lines[3]).expandtabs()))

    def test_nothing_recorded_is_no_error(self):
        for extended in (True, False):
            self.assertEqual(SimpleProfiler(extended=extended).summary(), "Profiler Report\n\n")

    def test_starting_twice_and_stopping_before_start_are_errors(self):
        profiler = SimpleProfiler()
        with self.assertRaisesRegex(ValueError, r"recording an action \(a\) which was never started\."):
            profiler.stop("a")
        profiler.start("a")
        with self.assertRaisesRegex(ValueError, "Attempted to start a which has already started"):
            profiler.start("a")
        profiler.stop("a")
        self.assertEqual(len(profiler.recorded_durations["a"]), 1)

    def test_an_action_ends_when_its_block_raises(self):
        profiler = SimpleProfiler()
        with self.assertRaises(KeyError), profiler.profile("a") as name:
            self.assertEqual(name, "a")
            raise KeyError
        self.assertEqual(list(profiler.recorded_durations), ["a"])
        self.assertEqual(profiler.current_actions, {})

    def test_profile_iterable_measures_each_next(self):
        profiler = SimpleProfiler()

        def broken():
            yield 1
            raise OSError

        self.assertEqual(list(profiler.profile_iterable([1, 2], "a")), [1, 2])
        with self.assertRaises(OSError):
            list(profiler.profile_iterable(broken(), "b"))
        # The end of an iteration takes time too, as it did in Lightning.
        self.assertEqual({k: len(v) for k, v in profiler.recorded_durations.items()}, {"a": 3, "b": 2})


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_file_names_contain_stage_rank_and_action(self):
        profiler = PassThroughProfiler(filename="run")
        name = profiler._prepare_filename
        self.assertEqual(name(), "run.txt")
        profiler.setup("fit", None, "there")
        self.assertEqual(profiler.dirpath, "there")
        self.assertEqual(name(), "fit-run.txt")
        profiler.setup("validate", 3, "elsewhere")
        self.assertEqual(profiler.dirpath, "there")
        self.assertEqual((name(), profiler.local_rank), ("validate-run-3.txt", 3))
        self.assertEqual(name('a/b\\c:*?"<>|\n\r\td__e', ".prof"), "validate-run-3-a_b_c_d_e.prof")
        self.assertEqual(PassThroughProfiler()._prepare_filename(), "profile.txt")
        self.assertEqual(PassThroughProfiler(filename=" a ")._prepare_filename(), "a.txt")

    def test_reports_are_appended(self):
        profiler = SimpleProfiler(dirpath=self.folder / "new", filename="run")
        for _ in range(2):
            profiler.describe()
            self.assertIsNone(profiler._output_file)
        self.assertEqual((self.folder / "new" / "run.txt").read_text(), "Profiler Report\n\n" * 2)

    def test_first_rank_prints_without_a_file(self):
        for rank, expected in ((None, 1), (0, 1), (1, 0)):
            profiler = SimpleProfiler()
            profiler.setup("test", rank)
            with mock.patch("sys.stdout", io.StringIO()) as out:
                profiler.describe()
            self.assertEqual(out.getvalue().count("TEST Profiler Report"), expected)
        with self.assertLogs("stepscope.lightning", logging.INFO) as logs:
            SimpleProfiler().describe()
        self.assertIn("Profiler Report", logs.output[0])

    def test_advanced_profiler_writes_files_for_pstats(self):
        profiler = AdvancedProfiler(dirpath=self.folder, filename="run", dump_stats=True)
        profiler.setup("fit", 0)
        with profiler.profile("a/b"):
            work()
        profiler.describe()
        text = (self.folder / "fit-run-0.txt").read_text()
        self.assertTrue(text.startswith("FIT Profiler Report\nProfile stats for: a/b rank: 0\n"))
        stats = pstats.Stats(str(self.folder / "fit-run-0-a_b.prof")).stats
        self.assertEqual(stats[(__file__, fib.__code__.co_firstlineno, "fib")][:2], (1, 41))
        with self.assertRaisesRegex(ValueError, "dirpath"):
            unbound = AdvancedProfiler(dump_stats=True)
            with unbound.profile("a"):
                pass
            unbound.describe()

    def test_copies_contain_results_and_no_open_files(self):
        simple = SimpleProfiler(self.folder, "run", log_dir=self.folder)
        advanced = AdvancedProfiler(self.folder, "run", 0.5, dump_stats=True)
        for profiler in (simple, advanced, PassThroughProfiler()):
            with profiler.profile("a"):
                pass
            for other in (copy.deepcopy(profiler), pickle.loads(pickle.dumps(profiler))):
                self.assertEqual((other.dirpath, other.filename), (profiler.dirpath, profiler.filename))
                with other.profile("b"):
                    pass
            if profiler is simple:
                self.assertEqual(list(other.recorded_durations), ["a", "b"])
            profiler.teardown(None)
        self.assertEqual((other.filename, copy.deepcopy(advanced).line_count_restriction), (None, 0.5))


class Advanced(unittest.TestCase):
    def test_counts_equal_those_of_cprofile(self):
        theirs = cProfile.Profile()
        theirs.enable()
        work()
        theirs.disable()
        theirs.create_stats()
        profiler = AdvancedProfiler()
        profiler.start("a")
        work()
        profiler.stop("a")
        ours = profiler.profiled_actions["a"]
        ours.create_stats()
        self.assertEqual(counts(ours.stats), counts(theirs.stats))
        self.assertGreater(len(counts(ours.stats)), 10)

    def test_inline_and_total_times_are_consistent(self):
        profiler = AdvancedProfiler()
        with profiler.profile("a"):
            work()
        entries = profiler.profiled_actions["a"].getstats()
        for entry in entries:
            self.assertLessEqual(entry.inlinetime, entry.totaltime + 1e-9)
            if entry.calls and not entry.reccallcount:
                below = sum(called.totaltime for called in entry.calls)
                self.assertAlmostEqual(entry.totaltime, entry.inlinetime + below, delta=1e-8 * len(entries))

    def test_nested_actions_count_in_both_profiles(self):
        profiler = AdvancedProfiler()

        def middle():
            leaf(1)
            with profiler.profile("inner"):
                inner_part()
            leaf(2)

        with profiler.profile("outer"):
            middle()
            leaf(3)
        outer = profiler.profiled_actions["outer"]
        inner = profiler.profiled_actions["inner"]
        outer.create_stats()
        inner.create_stats()

        def calls(stats, function):
            code = function.__code__
            entry = stats.get((code.co_filename, code.co_firstlineno, code.co_name))
            return entry and entry[:2]

        self.assertEqual([calls(outer.stats, f) for f in (middle, leaf, fib)], [(1, 1), (4, 4), (1, 15)])
        self.assertEqual([calls(inner.stats, f) for f in (middle, leaf, fib)], [None, (1, 1), (1, 15)])
        package = Path(stepscope.__file__).parent
        self.assertEqual([file for file, *_ in outer.stats if package in Path(file).parents], [])
        # The time of the inner action is in the outer one's, with that of the functions around it.
        by_middle = outer.stats[(__file__, inner_part.__code__.co_firstlineno, "inner_part")][3]
        self.assertLessEqual(by_middle, outer.stats[(__file__, middle.__code__.co_firstlineno, "middle")][3])

    def test_actions_may_end_in_any_order(self):
        profiler = AdvancedProfiler()

        def begin():
            profiler.start("a")
            leaf(1)

        begin()
        leaf(2)
        profiler.start("b")
        leaf(3)
        profiler.stop("a")
        leaf(4)
        profiler.stop("b")
        key = (__file__, leaf.__code__.co_firstlineno, "leaf")
        for action, expected in (("a", 3), ("b", 2)):
            profile = profiler.profiled_actions[action]
            profile.create_stats()
            self.assertEqual(profile.stats[key][1], expected, action)

    def test_running_functions_count_up_to_the_stop(self):
        profiler = AdvancedProfiler()

        def runs():
            leaf(1)
            profiler.stop("a")

        profiler.start("a")
        runs()
        profile = profiler.profiled_actions["a"]
        profile.create_stats()
        self.assertEqual(profile.stats[(__file__, runs.__code__.co_firstlineno, "runs")][:2], (1, 1))

    def test_action_without_calls_has_an_empty_report(self):
        with tempfile.TemporaryDirectory() as folder:
            profiler = AdvancedProfiler(folder, "run", dump_stats=True)
            with profiler.profile("nothing"), profiler.profile("a/b"):
                pass
            profiler.describe()
            names = sorted(path.name for path in Path(folder).iterdir())
            self.assertEqual(names, ["run-a_b.prof", "run-nothing.prof", "run.txt"])
            lines = Path(folder, "run.txt").read_text().splitlines()
        self.assertEqual(
            lines[1:3], ["Profile stats for: nothing", "         0 function calls in 0.000 seconds"]
        )

    def test_stop_of_an_unknown_action_is_an_error(self):
        with self.assertRaisesRegex(ValueError, r"recording an action \(a\) which was never started\."):
            AdvancedProfiler().stop("a")

    def test_active_cprofile_continues(self):
        done = run_python(
            """
            import cProfile, sys, warnings
            from stepscope.lightning import AdvancedProfiler
            other = cProfile.Profile()
            other.enable()
            profiler = AdvancedProfiler()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(2):
                    with profiler.profile("a"):
                        len([])
            other.disable()
            rows = profiler.profiled_actions["a"].rows()
            if sys.version_info >= (3, 12):
                assert not caught and rows, caught
            else:
                assert len(caught) == 1 and "another profiler" in str(caught[0].message), caught
                assert not rows
            assert any("len" in str(entry.code) for entry in other.getstats())
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_actions_and_a_recording_count_the_same_calls(self):
        name = f"${Path(__file__).name}:{fib.__code__.co_firstlineno} fib"
        profiler = AdvancedProfiler()
        options = stepscope.ProfileOptions(python_tracer_level=1)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with stepscope.trace(folder, options=options) as recording:
                with profiler.profile("a"):
                    fib(5)
                fib(3)
            self.assertEqual(len(xspace.read(recording.report.path).named(name)), 15 + 5)
        profile = profiler.profiled_actions["a"]
        profile.create_stats()
        # Before 3.12 a thread has one profile function.
        expected = [(1, 15)] if sys.version_info >= (3, 12) else []
        self.assertEqual(
            [entry[:2] for (*_, found), entry in profile.stats.items() if found == "fib"], expected
        )

    def test_other_threads_are_not_counted(self):
        profiler = AdvancedProfiler()
        with profiler.profile("a"):
            thread = threading.Thread(target=fib, args=(8,))
            thread.start()
            thread.join()
        names = {getattr(entry.code, "co_name", "") for entry in profiler.profiled_actions["a"].getstats()}
        self.assertNotIn("fib", names)
        self.assertIn("join", names)


class Timelines(unittest.TestCase):
    def test_actions_are_slices_and_batches_are_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            profiler = SimpleProfiler(log_dir=folder)
            profiler.setup("fit")
            for _ in range(3):
                with profiler.profile("run_training_batch"), profiler.profile("[Strategy]S.training_step"):
                    pass
            with profiler.profile("[Strategy]S.validation_step"), profiler.profile("mine"):
                pass
            with mock.patch("sys.stdout", io.StringIO()):
                profiler.describe()
            self.assertFalse(stepscope.is_recording())
            (file,) = files(folder)
            found = xspace.read(file)
        steps = {}
        for event in found.events:
            if event.name.startswith("[pl][profile]"):
                steps.setdefault(event.name.removeprefix("[pl][profile]"), []).append(
                    event.stats.get("step_num")
                )
        self.assertEqual(
            steps,
            {
                "run_training_batch": [0, 1, 2],
                "[Strategy]S.training_step": [None, None, None],
                "[Strategy]S.validation_step": [0],
                "mine": [None],
            },
        )

    def test_actions_join_a_running_recording(self):
        class Own(Profiler):
            def start(self, action_name):
                pass

            def stop(self, action_name):
                pass

        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder, options=stepscope.ProfileOptions(python_tracer_level=0)):
                own = Own(log_dir=folder + "/other")
                with own.profile("a"):
                    own.start("b")
                    own.stop("b")
                own.describe()
                self.assertTrue(stepscope.is_recording())
            self.assertFalse(Path(folder, "other").exists())
            (file,) = files(folder)
            self.assertLessEqual({"[pl][profile]a", "[pl][profile]b"}, xspace.read(file).names())


class Names(unittest.TestCase):
    def test_old_class_names_still_exist(self):
        self.assertIs(BaseProfiler, Profiler)
        self.assertIs(AbstractProfiler, Profiler)
        with self.assertRaises(TypeError):
            Profiler()

    def test_lightning_is_not_imported(self):
        done = run_python(
            """
            import sys
            import stepscope.lightning
            assert not {"torch", "lightning", "pytorch_lightning", "torch_xla"} & set(sys.modules)
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
