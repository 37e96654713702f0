"""
Run unit tests and write the skipped ones to the file that `STEPSCOPE_SKIPPED` names.

    STEPSCOPE_SKIPPED=skipped.json python tests/run_unittests.py discover --start-directory python/tests

The arguments are those of `python -m unittest`. The file is a JSON object: for each reason, the number of tests.
"""

import json
import os
import sys
import unittest
from collections import Counter
from pathlib import Path

# As `python -m unittest` does; Python puts the folder of a script there.
sys.path[0] = ""
program = unittest.main(module=None, argv=["python -m unittest", *sys.argv[1:]], exit=False)
skipped = Counter(reason for _, reason in program.result.skipped)
Path(os.environ["STEPSCOPE_SKIPPED"]).write_text(json.dumps(skipped), encoding="utf-8")
sys.exit(not (program.result.wasSuccessful() and program.result.testsRun))
