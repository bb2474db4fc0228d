"""`python -m spawner_config.upgrades back VERSION`: undo the upgrade of a stopped hub's state to VERSION."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spawner_config.database import database_url
from spawner_config.settings import Settings, exit_on_bad_settings
from spawner_config.upgrades.start import go_back

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Undo the upgrade, print what was done, and return the exit status."""
    if len(arguments) != 2 or arguments[0] != "back":
        print(__doc__, file=sys.stderr)
        return 2
    with exit_on_bad_settings():
        state = Settings.from_environment(environ).state
        print(go_back(state, database_url(environ, state), arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
