"""``python -m stepscope``: the ``stepscope`` command."""

import sys

from stepscope._command import main

sys.exit(main())
