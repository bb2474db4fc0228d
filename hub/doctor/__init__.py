"""`make doctor`: check a machine before and after `docker compose up`, and print the remedies.

Standard library only, here and in all imports from spawner_config: it runs before anything is installed.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this runs on whatever Python the machine has
    sys.exit("Farandole needs Python 3.11 or newer: make doctor PYTHON=python3.11")
