"""`python -m hub.tls COMMAND...`: run the TLS server if the certificate in /run/tls is usable.

Otherwise print what is wrong, because the server itself would exit with a stack trace. The engine restarts the
container until the certificate has been corrected.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from hub.doctor.address.certificate import CertificateError, check_pair, expires, local_text, uncovered
from spawner_config.settings import Settings, SettingsError

FOLDER = Path("/run/tls")


def main(command: list[str], folder: Path = FOLDER) -> NoReturn:
    """Replace this process with ``command``, or exit with status 1 if the certificate cannot be used."""
    try:
        check_pair(folder)
    except CertificateError as exc:
        sys.exit(f"No HTTPS: {exc}")
    try:
        print(f"The certificate is good until {local_text(expires(folder))}.", flush=True)
        _warn_of_names(folder)
    except CertificateError as exc:
        # Start the server anyway. Browsers warn about the certificate too, but the administrator can continue past the
        # warning, which is better than no page at all.
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
        # Start the server anyway, because browsers warn about each host that the certificate does not cover.
        print(f"Warning: the certificate is not for {' and '.join(lacks)}.", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
