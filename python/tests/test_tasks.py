"""Labels of asyncio's tasks: each task's on a row of its own, whatever other tasks run meanwhile."""

import asyncio
import contextlib
import gc
import sys
import tempfile
import threading
import unittest

import xspace
from recorded import record, run_python

import stepscope


def recorded(main, **options):
    """What a program of asyncio records."""
    return record(lambda: asyncio.run(main()), **options)


def rows(found):
    """The labels of each row, as (begin, end, name)."""
    by_row = {}
    for event in found.events:
        by_row.setdefault(event.line, []).append(
            (event.start_ns, event.start_ns + event.duration_ns, event.name)
        )
    return by_row


class Tasks(unittest.TestCase):
    def assert_nested(self, found, parents):
        """Each label's parent on its row, by name; None for none. Nothing overlaps."""
        told = {}
        for events in rows(found).values():
            stack = []
            for begin, end, name in sorted(events, key=lambda event: (event[0], -event[1])):
                while stack and stack[-1][1] <= begin:
                    stack.pop()
                if stack:
                    self.assertLessEqual(end, stack[-1][1], f"{name} overlaps {stack[-1][2]}")
                told[name] = stack[-1][2] if stack else None
                stack.append((begin, end, name))
        self.assertEqual(told, parents)

    def created_in(self, found):
        return {
            event.name: event.stats["asyncio.created_in"]
            for event in found.events
            if "asyncio.created_in" in event.stats
        }

    def test_interleaved_tasks_keep_their_parents(self):
        async def subtask(name, turns):
            with stepscope.Trace(f"outer {name}"):
                for turn in range(turns):
                    await asyncio.sleep(0)
                    with stepscope.Trace(f"inner {name} {turn}"):
                        await asyncio.sleep(0)

        async def main():
            with stepscope.Trace("main"):
                await asyncio.gather(*(subtask(number, 1 + number) for number in range(5)))

        found = recorded(main)
        expected = {"main": None}
        for number in range(5):
            expected[f"outer {number}"] = None
            expected.update({f"inner {number} {turn}": f"outer {number}" for turn in range(1 + number)})
        self.assert_nested(found, expected)
        self.assertEqual(self.created_in(found), {f"outer {number}": "main" for number in range(5)})
        self.assertEqual(len(rows(found)), 6)

    def test_task_row_names_the_label_that_created_it(self):
        async def child(name):
            with stepscope.Trace(name):
                await asyncio.sleep(0)

        async def middle():
            with stepscope.Trace("middle"):
                task = asyncio.create_task(child("grandchild"))
                await asyncio.sleep(0)
            after = asyncio.create_task(child("after the label"))
            await asyncio.gather(task, after)

        async def main():
            first = asyncio.create_task(child("of no label"))
            with stepscope.Trace("main"), stepscope.Trace("deeper"):
                task = asyncio.create_task(middle(), name="named by the program")
                await asyncio.sleep(0)
            await asyncio.gather(first, task)

        found = recorded(main)
        self.assertEqual(
            self.created_in(found),
            {"middle": "deeper", "grandchild": "middle", "after the label": "deeper"},
        )
        told = found.named("middle")[0]
        self.assertEqual(told.stats["asyncio.task"], "named by the program")
        self.assertRegex(told.line, r" \(tasks \d+\)$")

    @unittest.skipIf(sys.version_info < (3, 11), "TaskGroup")
    def test_task_groups_and_cancelled_tasks_are_recorded(self):
        async def waits(name):
            with stepscope.Trace(name):
                await asyncio.Event().wait()

        async def fails():
            with stepscope.Trace("fails"):
                await asyncio.sleep(0)
                raise LookupError

        async def main():
            with stepscope.Trace("main"), contextlib.suppress(Exception):
                async with asyncio.TaskGroup() as group:
                    for number in range(3):
                        group.create_task(waits(f"cancelled {number}"))
                    group.create_task(fails())
            with stepscope.Trace("after"):
                await asyncio.sleep(0)

        found = recorded(main)
        names = ["main", "fails", "after", *(f"cancelled {number}" for number in range(3))]
        self.assert_nested(found, dict.fromkeys(names))
        self.assertEqual(set(self.created_in(found).values()), {"main"})
        self.assertFalse([event for event in found.events if event.stats.get("unfinished")])

    def test_task_rows_are_reused(self):
        async def one(gate):
            with stepscope.Trace("one"):
                await gate.wait()

        async def main():
            for _ in range(20):
                gate = asyncio.Event()
                tasks = [asyncio.create_task(one(gate)) for _ in range(7)]
                await asyncio.sleep(0)
                gate.set()
                await asyncio.gather(*tasks)

        found = recorded(main)
        self.assertEqual(len(found.named("one")), 140)
        self.assertEqual(len(rows(found)), 7)

    def test_tasks_beyond_the_row_limit_are_recorded(self):
        async def one(gate):
            with stepscope.Trace("one"):
                await gate.wait()

        async def main():
            gate = asyncio.Event()
            tasks = [asyncio.create_task(one(gate)) for _ in range(5_000)]
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(*tasks)

        found = recorded(main)
        self.assertEqual(len(found.named("one")), 5_000)
        self.assertLessEqual(len(rows(found)), 4_096 + 1)

    def test_generators_belong_to_the_task_that_runs_them(self):
        async def numbers(name):
            with stepscope.Trace(f"numbers {name}"):
                for number in range(3):
                    await asyncio.sleep(0)
                    yield number

        async def reads(name):
            with stepscope.Trace(f"reads {name}"):
                async for _ in numbers(name):
                    with stepscope.Trace(f"got {name}"):
                        await asyncio.sleep(0)

        async def main():
            await asyncio.gather(reads("a"), reads("b"))

        found = recorded(main)
        expected = {}
        for name in ("a", "b"):
            expected.update({f"reads {name}": None, f"numbers {name}": f"reads {name}"})
            expected[f"got {name}"] = f"numbers {name}"
        self.assert_nested(found, expected)

    def test_generator_may_be_closed_by_another_task(self):
        async def numbers():
            with stepscope.Trace("numbers"):
                yield 1
                yield 2

        kept = []

        async def begins():
            kept.append(numbers())
            await kept[0].__anext__()

        async def closes():
            with stepscope.Trace("closes"):
                await kept[0].aclose()
                await asyncio.create_task(child())

        async def child():
            with stepscope.Trace("child"):
                await asyncio.sleep(0)

        async def main():
            await asyncio.create_task(begins())
            await asyncio.create_task(closes())

        found = recorded(main)
        self.assert_nested(found, dict.fromkeys(("numbers", "closes", "child")))
        self.assertEqual(self.created_in(found), {"child": "closes"})

    def test_one_label_may_be_open_in_many_tasks(self):
        shared = stepscope.Trace("shared")

        @stepscope.annotate_function(name="decorated")
        async def decorated(turns):
            with shared:
                for _ in range(turns):
                    await asyncio.sleep(0)

        async def main():
            await asyncio.gather(*(decorated(turns) for turns in (3, 1, 2)))

        found = recorded(main)
        self.assertEqual(len(found.named("shared")), 3)
        for events in rows(found).values():
            inner, outer = sorted(events, key=lambda event: event[1] - event[0])
            self.assertEqual((inner[2], outer[2]), ("shared", "decorated"))
            self.assertTrue(outer[0] <= inner[0] and inner[1] <= outer[1])

    def test_instants_and_arguments_go_to_the_row_of_their_task(self):
        async def subtask(name):
            with stepscope.Trace(name, given=1) as label:
                await asyncio.sleep(0)
                label.set_metadata(later=name)
                stepscope.instant(f"point of {name}")
                await asyncio.sleep(0)

        async def main():
            await asyncio.gather(subtask("a"), subtask("b"))

        found = recorded(main)
        for name in ("a", "b"):
            (label,), (point,) = found.named(name), found.named(f"point of {name}")
            self.assertEqual((label.stats["given"], label.stats["later"]), (1, name))
            self.assertEqual(label.line, point.line)

    def test_tasks_may_outlive_the_recording(self):
        async def subtask(gate):
            with stepscope.Trace("outlives"):
                await gate.wait()
            with stepscope.Trace("second"):
                await asyncio.sleep(0)

        async def main():
            gate = asyncio.Event()
            options = stepscope.ProfileOptions(python_tracer_level=0)
            with tempfile.TemporaryDirectory() as folder:
                with stepscope.trace(folder, options=options) as first:
                    tasks = [asyncio.create_task(subtask(gate)) for _ in range(3)]
                    await asyncio.sleep(0)
                with stepscope.trace(folder, options=options) as second:
                    gate.set()
                    await asyncio.gather(*tasks)
                return xspace.read(first.report.path), xspace.read(second.report.path), first.report

        first, second, report = asyncio.run(main())
        self.assertEqual([event.name for event in first.events], ["outlives"] * 3)
        self.assertEqual((report.unfinished, len(rows(first))), (3, 3))
        self.assertEqual([event.name for event in second.events], ["second"] * 3)

    def test_dropped_tasks_end_their_slices(self):
        async def never():
            with stepscope.Trace("never"):
                await asyncio.Event().wait()

        async def after(name):
            with stepscope.Trace(name):
                await asyncio.sleep(0)

        def work():
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)
            task = loop.create_task(never())
            loop.run_until_complete(asyncio.sleep(0))
            del task
            gc.collect()
            loop.run_until_complete(both())
            loop.close()

        async def both():
            await asyncio.gather(after("a"), after("b"))

        self.assertEqual(record(work).names(), {"never", "a", "b"})

    def test_threads_without_tasks_are_unchanged(self):
        async def main():
            with stepscope.Trace("task"):
                await asyncio.to_thread(work)

        def work():
            with stepscope.Trace("thread"), stepscope.Trace("inner"):
                pass

        found = recorded(main)
        by_name = {event.name: event.line for event in found.events}
        self.assertEqual(by_name["thread"], by_name["inner"])
        self.assertEqual([line for line in by_name.values() if "(tasks" in line], [])

        def plain():
            thread = threading.Thread(target=work, name="plain")
            thread.start()
            thread.join()

        self.assertEqual({event.line for event in record(plain).events}, {"plain"})

    def test_single_task_uses_the_row_of_its_thread(self):
        async def cell(name):
            with stepscope.Trace(name), stepscope.Trace(f"inner {name}"):
                pass

        async def main():
            for name in ("a", "b"):
                await asyncio.create_task(cell(name))

        def plain():
            for name in ("a", "b"):
                with stepscope.Trace(name), stepscope.Trace(f"inner {name}"):
                    pass

        told = [
            [(event.line, event.name, event.stats) for event in found.events]
            for found in (recorded(main), record(plain))
        ]
        self.assertEqual(*told)

    def test_callbacks_are_separate_from_open_tasks(self):
        async def waits(gate):
            with stepscope.Trace("waits"):
                await gate.wait()

        async def main(gate):
            loop = asyncio.get_running_loop()
            called = loop.create_future()

            def callback():
                with stepscope.Trace("callback"):
                    called.set_result(None)

            kept.append(loop.create_task(waits(gate)))
            await asyncio.sleep(0)
            loop.call_soon(callback)
            await called

        kept = []

        def work():
            loop = asyncio.new_event_loop()
            gate = asyncio.Event()
            loop.run_until_complete(main(gate))
            with stepscope.Trace("between"):
                gate.set()
                loop.run_until_complete(kept.pop())
            loop.close()

        found = record(work)
        self.assert_nested(found, dict.fromkeys(("waits", "callback", "between")))
        self.assertNotEqual(found.named("waits")[0].line, found.named("between")[0].line)

    def test_steps_of_a_coroutine_contain_their_labels(self):
        async def main():
            for number in range(6):
                with stepscope.StepTrace("train", step_num=number):
                    with stepscope.Trace("load"):
                        await asyncio.sleep(0.001)
                    with stepscope.Trace("compute"):
                        await asyncio.sleep(0.001)

        with tempfile.TemporaryDirectory() as folder:
            options = stepscope.ProfileOptions(python_tracer_level=0)
            with stepscope.trace(folder, options=options):
                asyncio.run(main())
            (run,) = stepscope.open(folder, use_cache=False)
            self.assertEqual(run.report("overview").summary["steps"], 6)
            told = {row["label"]: row["place"] for row in run.report("steps").table}
            self.assertEqual(told, {"load": "step thread", "compute": "step thread"})

    def test_calls_and_labels_of_tasks_are_on_separate_rows(self):
        def called():
            return sum(range(10))

        async def subtask(name):
            with stepscope.Trace(name):
                await asyncio.sleep(0)
                called()

        async def main():
            await asyncio.gather(subtask("a"), subtask("b"))

        found = recorded(main, python_tracer_level=1)
        self.assertEqual(sum(event.name.endswith(" called") for event in found.events), 2)
        lines = {event.name: event.line for event in found.events if event.name in ("a", "b")}
        self.assertEqual(len(set(lines.values())), 2)

    def test_asyncio_is_not_imported(self):
        done = run_python(
            """
            import sys, tempfile, stepscope
            with stepscope.trace(tempfile.mkdtemp(), options=stepscope.ProfileOptions(python_tracer_level=0)):
                with stepscope.Trace("label"): pass
            assert "asyncio" not in sys.modules
            import asyncio
            assert "stepscope.recording._asyncio_tasks" in sys.modules
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
