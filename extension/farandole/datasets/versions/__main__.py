"""Commands for administrators::

python -m farandole.datasets.versions copy FOLDER VOLUME     copy a folder to an empty volume as a version
python -m farandole.datasets.versions verify VOLUME          compare a version with its manifest
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.manifest import verify
from farandole.exceptions import FarandoleError


def main() -> None:
    """Run the command, and print the digest of the version."""
    parser = argparse.ArgumentParser(prog="python -m farandole.datasets.versions", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    copy = commands.add_parser("copy", help="copy a folder to an empty folder as a version")
    copy.add_argument("source", type=Path)
    copy.add_argument("target", type=Path)
    commands.add_parser("verify", help="compare a version with its manifest").add_argument("folder", type=Path)
    options = parser.parse_args()
    try:
        print(copy_version(options.source, options.target).digest if "source" in options else verify(options.folder))
    except FarandoleError as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
