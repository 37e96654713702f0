"""Programs with very many threads and tasks, and clocks that are set."""

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path

import xspace
from recorded import record, run_python

import stepscope

THREADS = 10_000


def resident_bytes():
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Threads(unittest.TestCase):
    def test_ten_thousand_short_threads_are_recorded(self):
        """Nothing is lost, or its loss is counted; what they had is used again."""

        def one(number):
            with stepscope.Trace("outer", number=number), stepscope.Trace("inner"):
                pass

        def batch(first):
            threads = [threading.Thread(target=one, args=(number,)) for number in range(first, first + 50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        options = stepscope.ProfileOptions(python_tracer_level=0)
        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder, options=options, sources=[]) as recording:
                for first in range(0, THREADS // 10, 50):
                    batch(first)
                maps, memory = len(Path("/proc/self/maps").read_text().splitlines()), resident_bytes()
                for first in range(THREADS // 10, THREADS, 50):
                    batch(first)
                more_maps = len(Path("/proc/self/maps").read_text().splitlines()) - maps
                more_memory = resident_bytes() - memory
            report = recording.report
            self.assertEqual(report.spans + report.dropped, 2 * THREADS)
            self.assertEqual(report.dropped, 0)
            self.assertEqual(report.unfinished, 0)
            found = xspace.read(report.path)
        numbers = sorted(event.stats["number"] for event in found.named("outer"))
        self.assertEqual(numbers, list(range(THREADS)))
        self.assertEqual(len(found.named("inner")), THREADS)
        self.assertLess(more_maps, 200)
        self.assertLess(more_memory, 64 << 20)

    def test_traced_and_sampled_threads_are_recorded(self):
        """The tracer and the sampler keep nothing of threads that have gone."""

        def one():
            return sum(range(100))

        options = stepscope.ProfileOptions(python_tracer_level=1, python_sampling_hz=1_000)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # On a busy machine samples come late.
            warnings.simplefilter("ignore", stepscope.StepscopeWarning)
            with stepscope.trace(folder, options=options, sources=[]) as recording:
                for _ in range(20):
                    threads = [threading.Thread(target=one) for _ in range(50)]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
            found = xspace.read(recording.report.path)
        name = next(name for name in found.names() if name.endswith(f":{one.__code__.co_firstlineno} one"))
        called = [event for event in found.named(name) if not event.line.endswith("(sampled)")]
        self.assertEqual(len(called) + recording.report.dropped, 1_000)


class Tasks(unittest.TestCase):
    """Slices of many tasks on one thread: they overlap without nesting."""

    def test_many_interleaved_tasks_keep_their_slices(self):
        @stepscope.Trace("decorated")
        async def decorated(number):
            with stepscope.Trace("within", number=number):
                await asyncio.sleep(0.0001 * (number % 7))
                await asyncio.sleep(0)

        async def program():
            await asyncio.gather(*(decorated(number) for number in range(2_000)))

        found = record(lambda: asyncio.run(program()))
        self.assertEqual(len(found.named("decorated")), 2_000)
        numbers = sorted(event.stats["number"] for event in found.named("within"))
        self.assertEqual(numbers, list(range(2_000)))
        # Each has its own times: a sleep of 0.6 ms takes no less.
        for event in found.named("within"):
            self.assertGreaterEqual(event.duration_ns, 0.9e5 * (event.stats["number"] % 7))

    def test_cancelled_and_failed_tasks_end_their_slices(self):
        async def cancelled():
            with stepscope.Trace("cancelled"):
                await asyncio.sleep(60)

        async def failed():
            with stepscope.Trace("failed"):
                await asyncio.sleep(0)
                raise ZeroDivisionError

        async def program():
            tasks = [asyncio.create_task(cancelled()) for _ in range(10)]
            tasks += [asyncio.create_task(failed()) for _ in range(10)]
            # All of them begin before this goes on.
            await asyncio.sleep(0)
            with stepscope.Trace("meanwhile"):
                pass
            for task in tasks[:10]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual(
                [type(one) for one in outcomes], [asyncio.CancelledError] * 10 + [ZeroDivisionError] * 10
            )

        found = record(lambda: asyncio.run(program()))
        (meanwhile,) = found.named("meanwhile")
        for event in found.named("cancelled"):
            self.assertNotIn("unfinished", event.stats)
            self.assertLessEqual(event.start_ns, meanwhile.start_ns)
            self.assertGreaterEqual(event.start_ns + event.duration_ns, meanwhile.start_ns)
        self.assertEqual((len(found.named("cancelled")), len(found.named("failed"))), (10, 10))

    def test_unfinished_tasks_are_recorded(self):
        """Tasks of a loop that is closed, and generators that nobody closes: shown, and no crash."""
        program = """
            import asyncio, sys, gc
            import stepscope

            async def waits():
                with stepscope.Trace("waits"):
                    await asyncio.Event().wait()

            @stepscope.Trace("generates")
            def generates():
                yield 1
                yield 2

            @stepscope.annotate_function
            async def streams():
                with stepscope.Trace("streams"):
                    yield 1
                    yield 2

            async def program():
                global task, stream
                task = asyncio.ensure_future(waits())
                stream = streams()
                await stream.__anext__()
                await asyncio.sleep(0)

            loop = asyncio.new_event_loop()
            options = stepscope.ProfileOptions(python_tracer_level=0)
            stepscope.start_trace(sys.argv[1], options=options, sources=[])
            generator = generates()
            next(generator)
            loop.run_until_complete(program())
            loop.close()
            report = stepscope.stop_trace()
            print(report.spans, report.unfinished)
            # What they leave behind comes to its end in a session that is not theirs, or in none.
            stepscope.start_trace(sys.argv[1] + "/second", options=options, sources=[])
            del generator
            gc.collect()
            print(stepscope.stop_trace().spans)
            """
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(program, folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            # The task, the generator, and the asynchronous one with the block inside of it.
            self.assertEqual(done.stdout.split(), ["4", "4", "0"], done.stderr)

    def test_several_event_loops_are_recorded(self):
        async def worker(number):
            for _ in range(20):
                with stepscope.Trace("turn", number=number):
                    await asyncio.sleep(0)

        async def program():
            await asyncio.gather(*(worker(number) for number in range(20)))

        def work():
            threads = [threading.Thread(target=lambda: asyncio.run(program())) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        found = record(work)
        self.assertEqual(len(found.named("turn")), 8 * 20 * 20)

    def test_block_may_end_on_another_thread(self):
        """A coroutine that is driven by one thread and finished by another."""

        class Switch:
            def __await__(self):
                yield

        async def wanders():
            with stepscope.Trace("wanders", n=1) as span:
                await Switch()
                span.set_metadata(late=True)
                await Switch()

        def work():
            coroutines = [wanders() for _ in range(100)]
            for coroutine in coroutines:
                coroutine.send(None)

            def finish():
                for coroutine in coroutines:
                    coroutine.send(None)
                    try:
                        coroutine.send(None)
                    except StopIteration:
                        continue

            thread = threading.Thread(target=finish)
            thread.start()
            thread.join()

        found = record(work)
        self.assertEqual([event.stats["n"] for event in found.named("wanders")], [1] * 100)
        self.assertFalse(any("unfinished" in event.stats for event in found.named("wanders")))


@unittest.skipUnless(sys.platform == "linux", "uses Linux's preloading")
@unittest.skipUnless(shutil.which("cc"), "no C compiler")
class Clock(unittest.TestCase):
    """A clock on the wall that is set while something is recorded."""

    SOURCE = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <time.h>
        static volatile long ahead_s, reads;
        void set_the_clock(long seconds) { ahead_s = seconds; }
        long clock_reads(void) { return reads; }
        int clock_gettime(clockid_t clock, struct timespec *time) {
            static int (*real)(clockid_t, struct timespec *);
            if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
            int result = real(clock, time);
            if (clock == CLOCK_REALTIME) {
                time->tv_sec += ahead_s;
                reads++;
            }
            return result;
        }
        """
    PROGRAM = """
        import ctypes, sys, time
        import stepscope
        clock = ctypes.CDLL(sys.argv[2])
        def work(name):
            with stepscope.Trace(name):
                time.sleep(0.02)
        options = stepscope.ProfileOptions(python_tracer_level=0)
        before = time.time()
        stepscope.start_trace(sys.argv[1], options=options, sources=[])
        work("before")
        for n, ahead in enumerate((3600, -7200, 0)):
            clock.set_the_clock(ctypes.c_long(ahead))
            # The recorder reads the clocks about once a second; nothing else here reads this one.
            reads, until = clock.clock_reads(), time.monotonic() + 60
            while clock.clock_reads() == reads:
                assert time.monotonic() < until, "the recorder does not read the clocks"
                time.sleep(0.01)
            work(f"after {n}")
        print(stepscope.stop_trace().path)
        print(before)
        """

    def test_system_clock_jumps_move_no_events(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "clock.c"), Path(folder, "clock.so")
            source.write_text(self.SOURCE)
            command = ["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"]
            subprocess.run(command, check=True, capture_output=True)
            os.environ["LD_PRELOAD"] = str(library)
            try:
                done = run_python(self.PROGRAM, folder, library)
            finally:
                del os.environ["LD_PRELOAD"]
            self.assertEqual(done.returncode, 0, done.stderr)
            path, before = done.stdout.split()
            found = xspace.read(path)
            events = [found.named(name)[0] for name in ("before", "after 0", "after 1", "after 2")]
            for event in events:
                # A clock that was set moves by hours; a busy machine sleeps for longer than it was asked to.
                self.assertTrue(1.9e7 < event.duration_ns < 6e10, event)
            apart = [(later.start_ns - event.start_ns) / 1e9 for event, later in itertools.pairwise(events)]
            for seconds in apart:
                self.assertTrue(0 < seconds < 60, apart)
            epoch_s = stepscope.open(path, use_cache=False).run.epoch_unix_ns / 1e9
            self.assertLess(abs(epoch_s - float(before)), 300)


if __name__ == "__main__":
    unittest.main()
