"""`make doctor`: look at a machine before and after `docker compose up`, and say what to mend.

Standard library only, here and in what is imported from spawner_config: it runs before anything is installed.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this runs on whatever Python the machine has
    sys.exit("Farandole needs Python 3.11 or newer: make doctor PYTHON=python3.11")
