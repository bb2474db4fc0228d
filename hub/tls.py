"""`python -m hub.tls COMMAND...`: run the TLS server once the certificate in /run/tls is valid; else print the fault.

The server itself would end with a stack trace. The engine restarts the container, so that it serves soon after the
certificate is repaired.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from hub.doctor.address.certificate import CertificateError, check_pair, expires, uncovered
from spawner_config.settings import Settings, SettingsError

FOLDER = Path("/run/tls")


def main(command: list[str], folder: Path = FOLDER) -> NoReturn:
    """Run ``command`` in place of this process; exits with 1 if the certificate cannot be used."""
    try:
        check_pair(folder)
    except CertificateError as exc:
        sys.exit(f"No HTTPS: {exc}")
    try:
        print(f"The certificate is good until {expires(folder):%Y-%m-%d}.", flush=True)
        _warn_of_names(folder)
    except CertificateError as exc:
        # Browsers show this too, but the administrator can continue, which is better than no page at all.
        print(f"Warning: {exc}", file=sys.stderr, flush=True)
    os.execvp(command[0], command)


def _warn_of_names(folder: Path) -> None:
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as exc:
        sys.exit(f"No HTTPS: {exc}")
    users = not settings.one_origin
    lacks = uncovered(folder, settings.public_domain, users=users) if settings.domain or users else []
    if lacks:
        # Browsers show this too, for each host.
        print(f"Warning: the certificate is not for {' and '.join(lacks)}.", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
