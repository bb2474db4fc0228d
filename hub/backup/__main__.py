"""`python -m hub.backup save | restore | list`: what `make backup` and `make restore` run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hub.backup.operations import Choice, back_up, list_backups, place_of, restore
from hub.backup.place import BackupError
from hub.backup.sites.find import KINDS, find_site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hub.backup.manifest import Manifest
    from hub.backup.sites.site import Site


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command; print its result, or what is wrong."""
    options = _parser().parse_args(arguments)
    try:
        if not options.place:
            raise BackupError(f"Name the place of the backups: {options.example}")
        options.command(find_site(options.site, Path(), environ), options)
    except BackupError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hub.backup")
    parser.add_argument("--site", choices=("", *KINDS), default="", help="the kind of hub (default: found out)")
    commands = parser.add_subparsers(required=True)
    save = commands.add_parser("save", help="back up the hub")
    save.add_argument("--keep", type=_count, default=0, help="remove all but so many complete backups of this hub")
    save.set_defaults(command=_save, example="make backup TO=/mnt/backup")
    restored = commands.add_parser("restore", help="restore a backup into a stopped hub")
    restored.add_argument("--backup", default="", help="the name of the backup (default: the newest)")
    restored.add_argument("--replace", choices=("", "yes"), default="", help="also into a hub with users")
    restored.add_argument("--other-hub", choices=("", "yes"), default="", help="also a backup of another hub")
    restored.set_defaults(command=_restore, example="make restore FROM=/mnt/backup")
    listed = commands.add_parser("list", help="list the backups at a place")
    listed.set_defaults(command=_list, example="make backups FROM=/mnt/backup")
    for each in (save, restored, listed):
        each.add_argument("place", help="a folder, rest:https://HOST/PATH or s3:https://HOST/BUCKET/FOLDER")
    return parser


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"KEEP is {text!r}. It must be a number of backups, or 0 for all.")
    return int(text)


def _save(site: Site, options: argparse.Namespace) -> None:
    manifest = back_up(site, place_of(site, options.place), keep=options.keep)
    print(f"Backup {manifest.id} is complete: {_text(manifest)}.")


def _restore(site: Site, options: argparse.Namespace) -> None:
    choice = Choice(backup=options.backup, replace=bool(options.replace), other_hub=bool(options.other_hub))
    manifest = restore(site, place_of(site, options.place), choice)
    print(f"Backup {manifest.id} is restored: {_text(manifest)}. Start the hub.")


def _list(site: Site, options: argparse.Namespace) -> None:
    complete, interrupted = list_backups(site, place_of(site, options.place))
    for manifest in complete:
        print(f"{manifest.id}  {_text(manifest)}, hub {manifest.hub}, version {manifest.version}")
    for name in interrupted:
        print(f"{name}  interrupted")


def _text(manifest: Manifest) -> str:
    return f"{len(manifest.parts)} parts, {manifest.bytes / 2**30:.2f} GiB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
