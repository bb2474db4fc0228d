"""`make doctor`: check a machine before and after `docker compose up`, and print how to fix what it finds.

This package, and every module that it imports from spawner_config, uses only the standard library, because
administrators run the command before anything is installed.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this runs on whatever Python the machine has
    sys.exit("Farandole needs Python 3.11 or newer: make doctor PYTHON=python3.11")
