"""`TO=PLACE [SETTINGS=FILE] python -m hub.upgrade VERSION [FOLDER]`: upgrade the hub whose `.env` is in FOLDER.

`make upgrade` runs this command. TO is the place of the backup, or `none`. The exit status is 1 if the hub was not
upgraded.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hub.doctor.deployment import read_env_file
from hub.upgrade.compose import ComposeHub, UpgradeError
from hub.upgrade.journal import VERSION_SETTING, Journal
from hub.upgrade.steps import PUBLISHED, Upgrade

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_BACKUP = "none"


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Upgrade the hub, print each step, and return the exit status."""
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[1] if arguments[1:] else ".").expanduser().resolve()
    try:
        hub = ComposeHub(folder, environ)
        settings = read_settings(arguments[0], environ.get("SETTINGS", ""))
        place = environ.get("TO", "")
        if not place and not Journal.read(folder):
            raise UpgradeError(
                "Name the place for the backup, as for `make backup`: make upgrade VERSION=0.2.0 TO=PLACE. With "
                "TO=none the upgrade makes no backup: it goes back if it fails, and not later."
            )
        Upgrade(hub=hub, settings=settings, back_up=lambda: back_up_hub(hub, place)).run()
    except (UpgradeError, OSError) as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("The upgrade was interrupted. Run the command again.", file=sys.stderr)
        return 1
    return 0


def read_settings(version: str, file: str) -> dict[str, str]:
    """Return the settings that change; ``file`` has the lines that `make publish` printed. Raises `UpgradeError`."""
    published = read_env_file(Path(file).expanduser()) if file else {}
    if unknown := [key for key in published if key not in PUBLISHED]:
        raise UpgradeError(f"{file} may only have lines that `make publish` prints. Remove {', '.join(unknown)}.")
    settings = {VERSION_SETTING: version, **published}
    if version and settings[VERSION_SETTING] != version:
        raise UpgradeError(f"{file} is for version {settings[VERSION_SETTING]}, and VERSION is {version}.")
    return settings


def back_up_hub(hub: ComposeHub, place: str) -> None:
    """Back up the hub to ``place``, unless it is ``none``; raises `UpgradeError`."""
    if place == NO_BACKUP:
        print("   No backup, because TO is none.")
        return
    from hub.backup.operations import back_up, place_of
    from hub.backup.place import BackupError
    from hub.backup.sites.find import find_site

    try:
        site = find_site("compose", hub.folder, hub.environ)
        back_up(site, place_of(site, place))
    except BackupError as exc:
        raise UpgradeError(f"The hub was not backed up: {exc} Nothing was changed.") from exc


if __name__ == "__main__":
    # Handle these signals like Ctrl-C, so that the upgrade goes back.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:], os.environ))
