"""Commands for administrators::

python -m farandole.datasets.versions copy FOLDER VOLUME          copy a folder to an empty volume as a version
python -m farandole.datasets.versions verify VOLUME               compare a version with its manifest
python -m farandole.datasets.versions mirror FROM VERSION VOLUME  copy a version from a folder or another hub

The hub itself runs ``publish``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from farandole.datasets.versions import helper
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.manifest import verify
from farandole.datasets.versions.mirror import mirror
from farandole.datasets.versions.names import parse_version
from farandole.datasets.versions.sources import open_source
from farandole.exceptions import FarandoleError


def main() -> None:
    """Run the command, and print the digest of the version."""
    options = _parser().parse_args()
    if options.command == helper.COMMAND:
        sys.exit(helper.run(options.source, options.target, options.result))
    try:
        print(_run(options))
    except FarandoleError as exc:
        sys.exit(str(exc))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m farandole.datasets.versions", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    copy = commands.add_parser("copy", help="copy a folder to an empty folder as a version")
    copy.add_argument("source", type=Path)
    copy.add_argument("target", type=Path)
    commands.add_parser("verify", help="compare a version with its manifest").add_argument("folder", type=Path)
    copied = commands.add_parser("mirror", help="copy a version from a folder or another hub; continues where it ended")
    copied.add_argument("source", help="a folder, or the address of a notebook server, which needs a token")
    copied.add_argument("version", help="such as imagenet@2")
    copied.add_argument("target", type=Path)
    helper.add_arguments(commands.add_parser(helper.COMMAND, help="what the hub runs to publish a folder"))
    return parser


def _run(options: argparse.Namespace) -> str:
    if options.command == "copy":
        return copy_version(options.source, options.target).digest
    if options.command == "verify":
        return verify(options.folder)
    return mirror(open_source(options.source, parse_version(options.version)), options.target).digest


if __name__ == "__main__":
    main()
