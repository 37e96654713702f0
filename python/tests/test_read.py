import gc
import os
import pty
import signal
import struct
import sys
import tempfile
import threading
import time
import unittest
import weakref
from pathlib import Path
from unittest import mock

import xspace
from recorded import run_python

import stepscope
from stepscope import read
from stepscope.reading import _progress


def program(folder):
    """Records steps with something in them, an instant and a counter."""
    options = stepscope.ProfileOptions(python_tracer_level=0, session_id="one")
    with stepscope.trace(folder, options=options) as recording:
        for n in range(5):
            with stepscope.StepTrace("train", step_num=n):
                with stepscope.Trace("forward", rows=32, note="a", list=[1, 2]):
                    time.sleep(0.001)
                with stepscope.Trace("backward"):
                    pass
            stepscope.counter("loss", 1.0 / (n + 1))
        stepscope.instant("checkpoint", step=5)
    return recording.report.path


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.before_s = time.time()
        cls.path = program(cls.folder.name)
        cls.after_s = time.time()
        cls.file = xspace.read(cls.path)
        cls.run_ = stepscope.open(cls.folder.name, use_cache=False).run
        cls.track = next(track for track in cls.run_.tracks if len(track.slices) == 15)


class Runs(Recorded):
    def test_directory_and_file_open_the_same_run(self):
        of_file = stepscope.open(self.path, use_cache=False).run
        self.assertEqual([track.key for track in of_file.tracks], [track.key for track in self.run_.tracks])
        self.assertEqual(of_file.paths, (self.path,))

    def test_run_has_its_properties(self):
        run = self.run_
        self.assertEqual(run.name, "one")
        self.assertEqual(len(run.hosts), 1)
        self.assertEqual(run.facts["python_version"], sys.version.split()[0])
        self.assertIn("Python", run.kinds)
        self.assertEqual([str(warning) for warning in run.warnings if warning.severity != "notice"], [])
        # The system may adjust the clock by a little meanwhile.
        self.assertGreater(run.epoch_unix_ns / 1e9, self.before_s - 1)
        self.assertLess(run.epoch_unix_ns / 1e9, self.after_s + 1)
        self.assertGreater(run.duration_ns, 5e6)
        self.assertEqual(run.files[0].size_bytes, self.path.stat().st_size)

    def test_run_lists_its_steps(self):
        steps = self.run_.steps
        self.assertEqual([step.number for step in steps], list(range(5)))
        for step, event in zip(steps, self.file.named("train"), strict=True):
            self.assertAlmostEqual(step.duration_ns, event.duration_ns, places=3)
            self.assertGreater(step.duration_ns, 1e6)

    def test_runs_are_read_on_first_access(self):
        with tempfile.TemporaryDirectory() as folder:
            first = program(folder)
            with stepscope.trace(folder, options=stepscope.ProfileOptions(session_id="two")):
                pass
            traces = stepscope.open(folder, use_cache=False)
            self.assertEqual([run.name for run in traces], ["one", "two"])
            with self.assertRaisesRegex(stepscope.QueryError, "'one', 'two'"):
                traces.run
            with self.assertRaisesRegex(ValueError, "did you mean 'two'"):
                traces.find("twwo")
            first.write_bytes(b"\xff" * 100)
            self.assertEqual(len(traces.find("two").steps), 0)
            with self.assertRaises(stepscope.TraceReadError):
                traces.find("one").tracks

    def test_errors_have_the_documented_base_classes(self):
        with self.assertRaises(FileNotFoundError) as missing:
            stepscope.open("/no/such/path")
        self.assertIsInstance(missing.exception, stepscope.TraceNotFoundError)
        self.assertIn("/no/such/path", str(missing.exception))
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(stepscope.TraceNotFoundError, "contains no traces"):
                stepscope.open(folder)
            bad = Path(folder, "x.xplane.pb")
            bad.write_bytes(b"\xff" * 64)
            for kind in (ValueError, RuntimeError, OSError, stepscope.StepscopeError):
                with self.assertRaisesRegex(kind, "x.xplane.pb"):
                    stepscope.open(bad, use_cache=False)


class Tracks(Recorded):
    def test_track_lookup_accepts_key_and_name(self):
        self.assertIs(self.run_.track(self.track.key), self.track)
        self.assertEqual(self.run_.track(self.track.name).name, self.track.name)
        with self.assertRaisesRegex(stepscope.QueryError, "valid names: "):
            self.run_.track("no such track")
        self.assertIn(self.track, self.track.parent.children)

    def test_columns_equal_the_events_of_the_file(self):
        slices = self.track.slices
        expected = sorted(
            (event for event in self.file.events if event.name in ("train", "forward", "backward")),
            key=lambda event: (event.start_ns, -event.duration_ns),
        )
        self.assertEqual([slices.names[code] for code in slices.name], [event.name for event in expected])
        first = expected[0].start_ns
        for start, dur, event in zip(slices.start_ps, slices.duration_ps, expected, strict=True):
            self.assertAlmostEqual((start - slices.start_ps[0]) / 1000, event.start_ns - first, places=2)
            self.assertAlmostEqual(dur / 1000, event.duration_ns, places=2)
        self.assertEqual(slices.depth.tolist(), [0, 1, 1] * 5)
        self.assertEqual(slices.parent.tolist()[:6], [-1, 0, 0, -1, 3, 3])
        self.assertEqual([ps / 1000 for ps in slices.start_ps], slices.start_ns.tolist())
        self.assertEqual([ps / 1000 for ps in slices.duration_ps], slices.duration_ns.tolist())
        inner = slices.duration_ps[1] + slices.duration_ps[2]
        self.assertEqual(slices.self_ps[0], slices.duration_ps[0] - inner)

    def test_arguments_are_decoded_on_access(self):
        self.assertEqual(self.track.slices.args(1)["rows"], 32)
        self.assertEqual(self.track.slices[1].args["note"], "a")
        self.assertEqual(self.track.slices[0].args["step_num"], 0)
        with self.assertRaises(IndexError):
            self.track.slices.args(15)

    def test_slice_records_have_their_fields(self):
        slices = self.track.slices
        records = list(slices)
        self.assertEqual(records, [slices[n] for n in range(15)])
        self.assertEqual(slices[-1], records[14])
        self.assertEqual(slices[3:5], records[3:5])
        forward = records[1]
        self.assertEqual((forward.name, forward.parent, forward.depth), ("forward", records[0], 1))
        self.assertEqual(forward.end_ps, forward.start_ps + forward.duration_ps)
        self.assertEqual(forward.kind, "user label")
        self.assertFalse(forward.is_unfinished)
        self.assertIn("'forward'", repr(forward))
        with self.assertRaises(IndexError):
            slices[15]

    def test_instants_and_samples_have_columns_and_records(self):
        (instant,) = [one for track in self.run_.tracks for one in track.instants]
        self.assertEqual((instant.name, instant.args["step"]), ("checkpoint", 5))
        (counter,) = [track for track in self.run_.tracks if len(track.samples)]
        self.assertEqual((counter.kind, counter.name), ("counter", "loss"))
        self.assertEqual(counter.samples.value.tolist(), [1.0 / (n + 1) for n in range(5)])
        self.assertEqual([sample.value for sample in counter.samples], counter.samples.value.tolist())
        self.assertEqual(sorted(counter.samples.time_ps), counter.samples.time_ps.tolist())

    def test_unfinished_slices_are_marked(self):
        with tempfile.TemporaryDirectory() as folder:
            options = stepscope.ProfileOptions(python_tracer_level=0)
            stepscope.start_trace(folder, options=options)
            with stepscope.Trace("open"):
                stepscope.stop_trace()
            run = stepscope.open(folder, use_cache=False).run
            (event,) = run.search("open").events
        self.assertTrue(event.is_unfinished)


class Columns(Recorded):
    def test_column_shares_the_memory_of_the_trace(self):
        column = self.track.slices.start_ps
        view = memoryview(column)
        self.assertEqual((view.format, view.itemsize, view.shape, view.readonly), ("q", 8, (15,), True))
        self.assertEqual(bytes(view), struct.pack("15q", *column))
        self.assertEqual(address(column), address(self.track.slices.start_ps))
        self.assertEqual(column[2:4].tolist(), column.tolist()[2:4])
        self.assertEqual((column.format, len(column)), ("q", 15))
        self.assertIn("15, int64", repr(column))
        with self.assertRaises((BufferError, TypeError)):
            struct.pack_into("q", column, 0, 1)
        with self.assertRaises(IndexError):
            column[15]
        with self.assertRaises(TypeError):
            type(column)()

    def test_column_keeps_the_trace_alive(self):
        traces = stepscope.open(self.path, use_cache=False)
        column = next(track for track in traces.run.tracks if len(track.slices) == 15).slices.start_ps
        expected = column.tolist()
        view = memoryview(column)
        gone = weakref.ref(traces)
        del traces, column
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(view.tolist(), expected)

    def test_columns_have_their_types(self):
        slices = self.track.slices
        formats = [column.format for column in (slices.duration_ps, slices.name, slices.depth, slices.parent)]
        self.assertEqual(formats, ["q", "i", "H", "i"])
        self.assertEqual(len(slices.category), 15)

    def test_unused_arrow_capsules_are_freed(self):
        for _ in range(1000):
            self.track.slices.__arrow_c_stream__()
            self.track.slices.__arrow_c_schema__()
            self.track.slices.start_ps.__arrow_c_array__()
            self.run_.names.__arrow_c_array__()

    def test_empty_tracks_have_empty_columns(self):
        group = self.track.parent
        self.assertEqual(group.slices.start_ps.tolist(), [])
        self.assertEqual(list(group.slices) + list(group.instants) + list(group.samples), [])


def address(column):
    """Where a buffer begins."""
    import ctypes

    class Buffer(ctypes.Structure):
        _fields_ = [("buf", ctypes.c_void_p), ("rest", ctypes.c_byte * 80)]

    buffer = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(column), ctypes.byref(buffer), 0)
    found = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return found


class Questions(Recorded):
    def test_search_finds_slices_by_name(self):
        found = self.run_.search("FORWARD")
        self.assertEqual((found.total, [event.name for event in found.events]), (5, ["forward"] * 5))
        self.assertEqual(dict(found.by_track), {self.track.key: 5})
        self.assertEqual(len(self.run_.search("forward", limit=2).events), 2)
        second = self.run_.steps[1]
        inside = self.run_.search(
            "forward", start_ns=second.start_ns, end_ns=second.start_ns + second.duration_ns
        )
        self.assertEqual(inside.total, 1)
        self.assertEqual(self.run_.search("forward", tracks=[self.track.parent]).total, 0)
        self.assertEqual(self.run_.search("nothing of this name").events, ())

    def test_aggregate_groups_slices(self):
        rows = {row["name"]: row for row in self.run_.aggregate("name", tracks=[self.track])}
        forward = [one for one in self.track.slices if one.name == "forward"]
        self.assertEqual(rows["forward"]["count"], 5)
        self.assertEqual(rows["forward"]["total_ns"], sum(one.duration_ps for one in forward) / 1000)
        self.assertEqual(rows["forward"]["longest"], max(forward, key=lambda one: one.duration_ps))
        self.assertLess(rows["train"]["self_ns"], rows["train"]["total_ns"])
        tracks = self.run_.aggregate(["track", "kind"]).rows
        self.assertTrue(any(row["track"] == self.track.key for row in tracks))
        with self.assertRaisesRegex(ValueError, "did you mean 'name'"):
            self.run_.aggregate("nam")


class Reports(Recorded):
    def test_every_report_kind_can_be_made(self):
        kinds = read.report_kinds()
        self.assertIn("steps", [kind.name for kind in kinds])
        for kind in kinds:
            for by in (None, *kind.by):
                report = self.run_.report(kind.name, by=by)
                self.assertEqual(report.kind, kind.name)
                self.assertTrue(report.sentence)
                self.assertIn(report.sentence.split()[0], str(report))
                parts = [report.sentence_parts, *report.note_parts]
                joined = tuple("".join(part["text"] for part in sentence) for sentence in parts)
                self.assertEqual(joined, (report.sentence, *report.notes))
                sentences = {column["key"] for column in report.columns if column["unit"] == "sentence"}
                for row, shown in zip(report.to_dict()["rows"], report.rows, strict=True):
                    for key, cell in row.items():
                        plain = "".join(part["text"] for part in cell) if key in sentences else cell
                        self.assertEqual(shown[key], plain)
                for row in report.rows:
                    self.assertEqual(set(row), {column["key"] for column in report.columns})
                self.assertIn("<b>", report._repr_html_())
                columns = report.table.to_dict()
                self.assertEqual({len(values) for values in columns.values()} or {0}, {len(report.rows)})

    def test_reports_contain_short_and_full_names(self):
        columns = [
            {"key": "name", "title": "Name", "unit": "text"},
            {"key": "short_name", "title": "Short name", "unit": "text", "short_of": "name"},
        ]
        row = {"name": "void a::add<int>(int)", "short_name": "add<int>"}
        table = type(self.run_.report("steps").table)(columns, [row], 0)
        self.assertEqual(table.to_dict(), {key: [value] for key, value in row.items()})
        shown = table._repr_html_()
        self.assertIn("<th>Name</th></tr>", shown)
        self.assertIn("<td>add&lt;int&gt;</td></tr>", shown)

    def test_steps_report_has_one_row_per_step(self):
        report = self.run_.report("steps", by="step")
        durations = [step.duration_ns for step in self.run_.steps]
        self.assertEqual([row["duration_ns"] for row in report.rows], durations)
        self.assertEqual(len(self.run_.report("steps", by="step", top=2).rows), 2)
        self.assertEqual(self.run_.report("steps", by="step", top=2).table.left_out, 3)

    def test_report_adds_figures_of_another_profiler_on_request(self):
        self.assertNotIn("xprof_step_ns", self.run_.report("steps", by="step").rows[0])
        compared = self.run_.report("steps", by="step", compat="xprof")
        self.assertIn("xprof_step_ns", compared.rows[0])
        with self.assertRaisesRegex(stepscope.QueryError, "use hta or xprof"):
            self.run_.report("steps", compat="nsys")
        with self.assertRaisesRegex(stepscope.QueryError, "idle, overlap, ranks"):
            self.run_.report("steps", compat="hta")

    def test_report_can_be_limited_to_steps(self):
        numbers = [step.number for step in self.run_.steps]
        one = self.run_.report("steps", by="step", steps=numbers[1])
        self.assertEqual([row["step"] for row in one.rows], numbers[1:2])
        two = self.run_.report("steps", by="step", steps=(numbers[1], numbers[2]))
        self.assertEqual([row["step"] for row in two.rows], numbers[1:3])
        with self.assertRaisesRegex(stepscope.QueryError, f"no step 77 in this run, it has {numbers[0]}-"):
            self.run_.report("steps", steps=77)
        with self.assertRaisesRegex(ValueError, "two ranges"):
            self.run_.report("steps", steps=1, start_ns=0)

    def test_critical_path_covers_the_steps(self):
        steps = self.run_.steps
        path = self.run_.critical_path(by="segment")
        window = path.summary["window_ns"]
        first = min(step.start_ns for step in steps)
        last = max(step.start_ns + step.duration_ns for step in steps)
        self.assertAlmostEqual(window, last - first, places=3)
        self.assertAlmostEqual(sum(row["duration_ns"] for row in path.rows), window, places=3)
        ends = [row["start_ns"] + row["duration_ns"] for row in path.rows]
        for end, row in zip(ends, path.rows[1:], strict=False):
            self.assertAlmostEqual(row["start_ns"], end, places=3)
        one = self.run_.critical_path(steps=steps[1].number)
        self.assertAlmostEqual(one.summary["window_ns"], steps[1].duration_ns, places=3)
        same = self.run_.report("critical-path", by="op", steps=steps[1].number)
        self.assertEqual(one.to_dict(), same.to_dict())

    def test_critical_path_predicts_scenarios(self):
        path = self.run_.critical_path(by="kind", what_if=["host=x0.5", "host=x1"], preset="no-syncs")
        window = path.summary["window_ns"]
        half, same, without = path.sections["what_if"].rows
        self.assertAlmostEqual(half["saved_ns"], window / 2, delta=len(path.rows) * 100)
        self.assertEqual((same["step_ns"], same["saved_ns"]), (window, 0))
        self.assertEqual(without["what_if"], "no-syncs")
        [host] = [row for row in path.rows if row["name"] == "host"]
        self.assertEqual(host["selector"], "host")
        with self.assertRaisesRegex(stepscope.QueryError, "at position 0: the selector is unknown"):
            self.run_.critical_path(what_if="hosts=x0.5")

    def test_report_equals_the_report_of_the_command_line(self):
        import subprocess

        command = [sys.executable, "-m", "stepscope", "report", str(self.path), "steps"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        of_file = stepscope.open(self.path, use_cache=False).run
        self.assertEqual(str(of_file.report("steps")).splitlines()[1:3], done.stdout.splitlines()[1:3])

    def test_unknown_report_kind_lists_valid_kinds(self):
        with self.assertRaisesRegex(ValueError, "did you mean 'steps'.*use one of .*steps") as raised:
            self.run_.report("stesp")
        self.assertIsInstance(raised.exception, stepscope.StepscopeError)
        with self.assertRaisesRegex(stepscope.QueryError, "label"):
            self.run_.report("steps", by="nothing")


# What takes longer hangs: a debug build reads the file for seconds, on a busy machine for minutes.
WAIT_S = 600


class Patience(unittest.TestCase):
    """Long readings: progress, Ctrl-C, other threads."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = Path(cls.folder.name, "large.json")
        event = '{{"ph":"X","pid":1,"tid":{},"ts":{},"dur":1,"name":"n{}"}}'
        # Past 64 MiB a debug build takes seconds.
        many = ",\n".join(event.format(n % 7, n, n % 1000) for n in range(600_000))
        cls.path.write_text('{"traceEvents":[' + many + "]}")

    def open_in_child(self, code, **streams):
        import subprocess

        # A test started in the background by a shell inherits that Ctrl-C is ignored.
        prelude = (
            "import sys, stepscope, threading, time, os, signal\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        )
        return subprocess.Popen([sys.executable, "-c", prelude + code, str(self.path)], text=True, **streams)

    def test_ctrl_c_cancels_an_open(self):
        import subprocess

        child = self.open_in_child(
            "try:\n"
            "    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "    while True: stepscope.open(sys.argv[1], use_cache=False)\n"
            "except KeyboardInterrupt: print('stopped')\n",
            stdout=subprocess.PIPE,
        )
        out, _ = child.communicate(timeout=WAIT_S)
        self.assertEqual(out.strip(), "stopped")

    def test_open_releases_the_interpreter_lock(self):
        ticks, done = [], threading.Event()

        def tick():
            while not done.wait(0.002):
                ticks.append(time.monotonic())

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            # Were the lock held, there would be two at most, however often it is tried.
            until, inside = time.monotonic() + 60, 0
            while inside < 3:
                self.assertLess(time.monotonic(), until, "the lock is held")
                begun = time.monotonic()
                stepscope.open(self.path, use_cache=False)
                ended = time.monotonic()
                inside = sum(begun < one < ended for one in ticks)
        finally:
            done.set()
            thread.join()

    def test_progress_is_shown_on_terminals_only(self):
        import subprocess

        code = (
            "from stepscope.reading import _progress; _progress._QUIET_S = 0; "
            "stepscope.open(sys.argv[1], use_cache=False)"
        )
        piped = self.open_in_child(code, stderr=subprocess.PIPE)
        _, shown = piped.communicate(timeout=WAIT_S)
        self.assertEqual(shown, "")
        ours, theirs = pty.openpty()
        child = self.open_in_child(code, stderr=theirs)
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        os.close(ours)
        self.assertEqual(child.wait(WAIT_S), 0)
        self.assertIn(b"reading large", shown)
        self.assertIn(b"%", shown)
        self.assertTrue(shown.endswith(b"\r"), shown[-40:])

    def test_run_from_the_cache_is_equal(self):
        code = """
            import hashlib, sys, stepscope
            run = stepscope.open(sys.argv[1]).run
            print(run._content.from_cache)
            for track in run.tracks:
                s = track.slices
                for column in (s.start_ps, s.duration_ps, s.name, s.depth, s.parent):
                    print(track.key, len(s), hashlib.sha256(column).hexdigest())
                print([s[n].name for n in range(0, len(s), 10_000)])
        """
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
            first, second = (run_python(code, self.path, timeout=WAIT_S) for _ in range(2))
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertEqual(first.stdout.splitlines()[0], "False")
        self.assertEqual(second.stdout.splitlines()[0], "True")
        self.assertEqual(first.stdout.splitlines()[1:], second.stdout.splitlines()[1:])

    def test_progress_line_shows_share_and_time(self):
        self.assertEqual(
            _progress._line("reading x", 0.5, 10.0),
            "reading x [############............]  50%, 10 s, 10 s left",
        )
        self.assertNotIn("left", _progress._line("reading x", 0.0, 0.1))

    def test_error_in_the_progress_callback_cancels_the_open(self):
        found = stepscope._core.LogDirectory(str(self.path), use_cache=False)

        def tick(_):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            found.open(found.runs()[0][0], tick)


class AsWritten(Recorded):
    """`ProfileData`."""

    def test_profile_data_equals_the_content_of_the_file(self):
        of_file = stepscope.ProfileData.from_file(self.path)
        of_bytes = stepscope.ProfileData.from_serialized_xspace(self.path.read_bytes())
        for data in (of_file, of_bytes):
            names = [plane.name for plane in data.planes]
            self.assertIn("/host:CPU", names)
            self.assertEqual(data.find_plane_with_name("/host:CPU").name, "/host:CPU")
            self.assertIsNone(data.find_plane_with_name("/no such"))
            events = [event for line in data.find_plane_with_name("/host:CPU").lines for event in line.events]
            (first, *_) = [event for event in events if event.name == "forward"]
            (expected, *_) = self.file.named("forward")
            self.assertEqual(first.duration_ns, float(int(expected.duration_ns)))
            self.assertEqual(first.end_ns, first.start_ns + first.duration_ns)
            self.assertEqual(first.duration_ps // 1000, first.duration_ns)
            self.assertEqual(dict(first.stats)["rows"], 32)

    def test_text_proto_is_parsed(self):
        text = """
            # A comment.
            planes { name: "a" id: 1
              lines { id: 3 name: 'n' "m" timestamp_ns: 1000
                events { metadata_id: 1 offset_ps: 1500 duration_ps: 2500
                  stats { metadata_id: 1 int64_value: -4 }
                  stats < metadata_id: 1 double_value: -inf >,
                  stats { metadata_id: 1 bytes_value: "\\377\\x41" }
                  stats { metadata_id: 9 int64_value: 1 } stats { metadata_id: 1 ref_value: 1 }
                  stats { metadata_id: 1 uint64_value: 0xFFFFFFFFFFFFFFFF } stats { metadata_id: 1 } }
                events: [{ metadata_id: 2 }] }
              event_metadata { key: 1 value { id: 1 name: "e" } }
              stat_metadata { key: 1 value { id: 1 name: "s" } } }
        """
        data = stepscope.ProfileData.from_text_proto(text)
        (plane,) = data.planes
        (line,) = plane.lines
        first, second = line.events
        self.assertEqual((plane.name, line.name, first.name, second.name), ("a", "nm", "e", ""))
        self.assertEqual((first.start_ns, first.duration_ns, first.end_ns), (1001.0, 2.0, 1003.0))
        self.assertEqual((first.start_ps, first.duration_ps), (1_001_500, 2500))
        values = [-4, float("-inf"), b"\xffA", None, "s", 2**64 - 1, None]
        names = ["s" if value is not None else None for value in values]
        self.assertEqual(list(first.stats), list(zip(names, values, strict=True)))

    def test_errors(self):
        wrong = {
            "planes { nam: 1 }": "line 1, column 13: XPlane has no field 'nam'",
            "planes { id: 'x' }": "a number was expected",
            "planes { id: 1.5 }": "a whole number was expected",
            "planes {": "'}' is missing",
            "planes { name }": "':' is missing",
            "planes { id: 9223372036854775808 }": "does not fit",
            "planes { name: '\\377' }": "not UTF-8",
            "?": "cannot be read",
        }
        for text, reason in wrong.items():
            with self.assertRaises(stepscope.TraceReadError) as raised:
                stepscope.ProfileData.from_text_proto(text)
            self.assertIn(reason, str(raised.exception))
        with self.assertRaises(RuntimeError):
            stepscope.ProfileData(b"\xff\xff")
        with self.assertRaises(TypeError):
            stepscope.ProfileData("text")
        with self.assertRaises(FileNotFoundError):
            stepscope.ProfileData.from_file("/no/such/file")
        self.assertEqual(list(stepscope.ProfileData(b"").planes), [])


class Package(unittest.TestCase):
    def test_every_name_in_all_exists(self):
        for name in read.__all__:
            self.assertTrue(getattr(read, name).__doc__, name)
        self.assertIs(stepscope.open, read.open)
        self.assertNotIn("open", stepscope.__all__)

    def test_reading_imports_only_the_standard_library(self):
        with tempfile.TemporaryDirectory() as folder:
            program(folder)
            done = run_python(
                """
                import sys
                before = set(sys.modules)
                import stepscope
                run = stepscope.open(sys.argv[1], use_cache=False).run
                memoryview(run.tracks[0].slices.start_ps), run.steps, run.aggregate(), run.search("x")
                run.tracks[0].slices.__arrow_c_stream__()
                new = {name.split(".")[0] for name in set(sys.modules) - before}
                print(sorted(name for name in new if name not in sys.stdlib_module_names))
                """,
                folder,
            )
        self.assertEqual((done.stdout.strip(), done.stderr), ("['stepscope']", ""))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
