"""`python -m hub.services.streams FOLDER LISTEN [NAME ...]`: write the configuration of a NATS server, and become it.

The variable FARANDOLE_STREAMS_SECRET is the secret of its keys. With names, connections are encrypted, and the server's
certificate has these names. The NATS server itself does not get the secret.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from spawner_config.lifecycle.folder_lock import InUseError, lock_folder
from spawner_config.settings import exit_on_bad_settings
from spawner_config.streams.keys import Keys
from spawner_config.streams.server_config import ServerPlace
from spawner_config.streams.settings import StreamSettings

PROGRAM = "nats-server"
KEPT = ("PATH", "FARANDOLE_HUB_OF")
"""The environment variables that the NATS server inherits."""


def main(folder: Path, listen: str, *names: str) -> NoReturn:
    """Replace this process by a NATS server with its files in ``folder``, at the address and port ``listen``."""
    with exit_on_bad_settings():
        settings = StreamSettings.from_environment(os.environ)
    program = shutil.which(PROGRAM)
    if program is None:
        sys.exit(f"There is no program {PROGRAM}. Install it, for example with `apt-get install {PROGRAM}`.")
    place = ServerPlace(folder=folder, listen=listen, names=names)
    place.make()
    try:
        lock_folder(folder)
    except InUseError as exc:
        sys.exit(str(exc))
    configuration = place.write(Keys(settings.streams_secret))
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    os.execve(program, [PROGRAM, "--config", str(configuration)], kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
