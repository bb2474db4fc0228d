"""`python -m hub.tls COMMAND...`: run the server behind /run/tls once its certificate is good; else say what is wrong.

The server itself would end with a stack trace. The engine starts the container again, so that it serves soon after the
certificate is mended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from hub.doctor.certificate import CertificateError, check_pair, expires

FOLDER = Path("/run/tls")


def main(command: list[str], folder: Path = FOLDER) -> NoReturn:
    """Become ``command``; exits with 1 where the certificate is of no use."""
    try:
        check_pair(folder)
    except CertificateError as exc:
        sys.exit(f"No HTTPS: {exc}")
    try:
        print(f"The certificate is good until {expires(folder):%Y-%m-%d}.", flush=True)
    except CertificateError as exc:
        # Browsers say it too, and an administrator can get past that: better than no page at all.
        print(f"Warning: {exc}", file=sys.stderr, flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
