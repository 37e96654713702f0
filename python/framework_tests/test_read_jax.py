"""Columns as numpy, pyarrow and pandas see them, and `ProfileData` compared with JAX's, event by event."""

import gc
import os
import struct
import tempfile
import unittest
from pathlib import Path

import numpy
import pyarrow

import stepscope

TRACES = Path(
    os.environ.get("STEPSCOPE_TRACES") or Path(__file__).resolve().parents[2].parent / "shared" / "traces"
)


def recorded(folder):
    """Records a program of ours with calls."""
    with stepscope.trace(folder) as recording:
        for n in range(20):
            with stepscope.StepTrace("train", step_num=n), stepscope.Trace("forward", rows=n):
                sorted(range(50), key=lambda value: -value)
    return recording.report.path


class Columns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = recorded(cls.folder.name)
        run = stepscope.open(cls.path, use_cache=False).run
        cls.track = max(run.tracks, key=lambda track: len(track.slices))
        cls.slices = cls.track.slices

    def test_numpy_sees_the_same_memory(self):
        first, second = (numpy.asarray(self.slices.start_ps) for _ in range(2))
        self.assertTrue(numpy.shares_memory(first, second))
        self.assertEqual(first.ctypes.data, second.ctypes.data)
        self.assertFalse(first.flags.writeable)
        types = {
            name: numpy.asarray(getattr(self.slices, name)).dtype
            for name in ("start_ps", "duration_ps", "name", "depth", "parent", "category", "start_ns")
        }
        self.assertEqual(
            {name: str(kind) for name, kind in types.items()},
            {
                "start_ps": "int64",
                "duration_ps": "int64",
                "name": "int32",
                "depth": "uint16",
                "parent": "int32",
                "category": "int32",
                "start_ns": "float64",
            },
        )

    def test_pyarrow_sees_the_same_memory(self):
        table = pyarrow.table(self.slices)
        table.validate(full=True)
        self.assertEqual(
            table.column_names, ["start_ps", "duration_ps", "name", "depth", "parent", "category"]
        )
        for name in ("start_ps", "duration_ps", "depth", "parent"):
            chunk = table[name].chunk(0)
            ours = numpy.asarray(getattr(self.slices, name))
            self.assertEqual(chunk.buffers()[1].address, ours.ctypes.data, name)
            self.assertEqual(chunk.to_pylist(), ours.tolist(), name)
        codes = table["name"].chunk(0)
        self.assertEqual(codes.indices.buffers()[1].address, numpy.asarray(self.slices.name).ctypes.data)
        self.assertEqual(codes.to_pylist(), [record.name for record in self.slices])
        self.assertEqual(table.schema.field("start_ps").metadata, {b"unit": b"ps"})

    def test_column_and_names_are_arrow_arrays(self):
        column = pyarrow.array(self.slices.duration_ps)
        self.assertEqual(column.buffers()[1].address, numpy.asarray(self.slices.duration_ps).ctypes.data)
        self.assertEqual(pyarrow.array(self.slices.names).to_pylist(), list(self.slices.names))

    def test_arrays_outlive_the_trace(self):
        def taken():
            run = stepscope.open(self.path, use_cache=False).run
            slices = max(run.tracks, key=lambda track: len(track.slices)).slices
            return numpy.asarray(slices.start_ps), pyarrow.table(slices), slices.start_ps.tolist()

        array, table, expected = taken()
        gc.collect()
        self.assertEqual(array.tolist(), expected)
        self.assertEqual(table["start_ps"].to_pylist(), expected)

    def test_instants_samples_and_empty_tracks(self):
        with tempfile.TemporaryDirectory() as folder:
            options = stepscope.ProfileOptions(python_tracer_level=0)
            with stepscope.trace(folder, options=options):
                stepscope.instant("here", n=1)
                stepscope.counter("loss", 0.5)
            run = stepscope.open(folder, use_cache=False).run
            for track in run.tracks:
                for part in (track.slices, track.instants, track.samples):
                    table = pyarrow.table(part)
                    table.validate(full=True)
                    self.assertEqual(table.num_rows, len(part))
                    if len(track.samples):
                        self.assertEqual(pyarrow.table(track.samples)["value"].to_pylist(), [0.5])

    def test_group_by_of_arrow_equals_aggregate(self):
        table = pyarrow.table(self.slices)
        theirs = {
            row["name"]: (row["duration_ps_sum"], row["duration_ps_count"])
            for row in table.group_by("name")
            .aggregate([("duration_ps", "sum"), ("duration_ps", "count")])
            .to_pylist()
        }
        run = stepscope.open(self.path, use_cache=False).run
        track = run.track(self.track.key)
        ours = {
            row["name"]: (round(row["total_ns"] * 1000), row["count"])
            for row in run.aggregate("name", tracks=[track])
        }
        self.assertEqual(ours, theirs)


def bits(value):
    """A value that compares NaN with itself, and tells types apart."""
    if isinstance(value, float):
        return struct.pack("d", value)
    return (type(value), value)


def events_of(data, limit=30_000):
    """All that a file holds, as plain values."""
    count = 0
    for plane in data.planes:
        yield ("plane", plane.name)
        for name, value in plane.stats:
            yield ("stat", name, bits(value))
        for line in plane.lines:
            yield ("line", line.name)
            for event in line.events:
                yield (event.name, event.start_ns, event.duration_ns, event.end_ns)
                for name, value in event.stats:
                    yield ("stat", name, bits(value))
                count += 1
                if count >= limit:
                    return


class BesideJax(unittest.TestCase):
    def compare(self, path):
        from jax.profiler import ProfileData

        theirs = events_of(ProfileData.from_file(str(path)))
        ours = events_of(stepscope.ProfileData.from_file(path))
        count = 0
        while True:
            try:
                expected = next(theirs, None)
            except UnicodeDecodeError:
                # It gives bytes as text, and fails where they are none; there the comparison ends.
                return count
            self.assertEqual(next(ours, None), expected, f"{path}, item {count}")
            if expected is None:
                return count
            count += 1

    def test_our_files_read_as_in_jax(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertGreater(self.compare(recorded(folder)), 400)

    def test_other_files_read_as_in_jax(self):
        if not TRACES.is_dir():
            self.skipTest("no collected traces: STEPSCOPE_TRACES")
        files = sorted(TRACES.glob("*/**/*.xplane.pb"))
        files = [file for file in files if "broken" not in file.parts]
        self.assertGreater(len(files), 20)
        compared = [self.compare(file) for file in files]
        self.assertGreater(sum(compared), 100_000)

    def test_text_proto_is_parsed(self):
        from jax.profiler import ProfileData

        text = """planes { name: "a" lines { name: "n" display_name: "dn" timestamp_ns: 1000
            events { metadata_id: 1 offset_ps: 1500 duration_ps: 2500
              stats { metadata_id: 1 int64_value: -4 } stats { metadata_id: 1 double_value: 1.5 }
              stats { metadata_id: 1 str_value: "x\\ty" } stats { metadata_id: 77 int64_value: 1 }
              stats { metadata_id: 1 ref_value: 88 } }
            events { metadata_id: 9 } }
          event_metadata { key: 1 value { id: 1 name: "e1" display_name: "E1" } }
          stat_metadata { key: 1 value { id: 1 name: "s1" } } }"""
        ours, theirs = stepscope.ProfileData, ProfileData
        self.assertEqual(
            list(events_of(ours.from_text_proto(text))), list(events_of(theirs.from_text_proto(text)))
        )
        # The fields of a message may come in any order.
        ours_serialized = ours.text_proto_to_serialized_xspace(text)
        theirs_serialized = theirs.text_proto_to_serialized_xspace(text)
        self.assertEqual(sorted(ours_serialized), sorted(theirs_serialized))
        self.assertEqual(
            list(events_of(ours.from_serialized_xspace(theirs_serialized))),
            list(events_of(theirs.from_serialized_xspace(ours_serialized))),
        )


if __name__ == "__main__":
    unittest.main()
