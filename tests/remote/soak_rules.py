"""
Tests of the soak's rules: the files that its faults may write to, and the definition of a leak.

    python soak_rules.py [TEST…]
"""

from __future__ import annotations

import contextlib
import io
import random
import unittest
from pathlib import Path

import soak
from programs import run_tests, scratch


class Counted:
    """A fake process: returns the given numbers of handles and MiB in order, then repeats the last one."""

    def __init__(self, handles: list[int], mib: list[float]) -> None:
        self.handles = handles
        self.mib = mib

    def rss_mib(self) -> float:
        return self.mib.pop(0) if len(self.mib) > 1 else self.mib[0]

    def threads(self) -> int:
        return 4

    def descriptors(self) -> int:
        return self.handles.pop(0) if len(self.handles) > 1 else self.handles[0]


class Rules(unittest.TestCase):
    def verdict(self, handles: list[int], mib: list[float]) -> int:
        """Return the verdict for a process with five handles and 10 MiB after the warm-up."""
        warm = {"server": (10.0, 5, 4)}
        with scratch() as folder, contextlib.redirect_stdout(io.StringIO()):
            work = soak.Soak(folder, 1)
            last = soak.Table(work, {"server": Counted(handles, mib)}).quiet("end", warm)
            return soak.verdict(work, {"server": (True, "")}, warm, last)

    def test_a_handle_that_is_briefly_open_is_no_leak(self) -> None:
        self.assertEqual(self.verdict([6, 5, 6], [10]), 0)

    def test_memory_that_is_returned_while_idle_is_no_growth(self) -> None:
        self.assertEqual(self.verdict([5], [10 + 2 * soak.GROWTH_MIB, 10 + soak.GROWTH_MIB]), 0)

    def test_a_fault_writes_to_no_link_and_to_no_file_outside_the_folder(self) -> None:
        with scratch() as folder, scratch() as elsewhere:
            outside = elsewhere / "rings"
            outside.write_text("as it was")
            work = soak.Soak(folder, 1)
            journal = work.logs / "plugins/profile/run/.stepscope-journal-1-1"
            journal.parent.mkdir(parents=True)
            journal.symlink_to(elsewhere, target_is_directory=True)
            (work.files / "link").symlink_to(work.files / "target")
            for path in (outside, journal / "rings", journal, work.files / "link", Path("/dev/zero")):
                with self.assertRaises(AssertionError, msg=path):
                    work.inside(path)
            work.inside(work.files / "target")
            work.stopping.set()
            with self.assertRaises(AssertionError):
                soak.journal_faults(work)(random.Random(1))
            self.assertEqual(outside.read_text(), "as it was")

    def test_a_fault_truncates_the_journal_of_a_program_that_records(self) -> None:
        with scratch() as folder:
            work = soak.Soak(folder, 1)
            rings = work.logs / "plugins/profile/run/.stepscope-journal-1-1/rings"
            rings.parent.mkdir(parents=True)
            rings.write_text("content")
            work.stopping.set()
            noise = random.Random(1)
            fault = soak.journal_faults(work)
            while rings.stat().st_size == len("content"):
                fault(noise)
            self.assertGreater(work.counts["fault: truncated rings"], 0)


if __name__ == "__main__":
    run_tests()
