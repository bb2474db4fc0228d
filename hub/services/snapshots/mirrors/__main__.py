"""`python -m hub.services.snapshots.mirrors now | check | restore`: commands for operators of a hub with a mirror."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING

from hub.services.snapshots.mirrors.mirror import Mirror
from hub.services.snapshots.mirrors.place import MirrorError
from hub.services.snapshots.repository import BusyError
from hub.services.snapshots.restic import ResticError
from hub.services.snapshots.store import Store
from spawner_config.settings import Settings, exit_on_bad_settings
from spawner_config.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command, print what it did, and return 1 if something went wrong."""
    options = _parser().parse_args(arguments)
    with exit_on_bad_settings():
        state = Settings.from_environment(environ).state
        store = Store(state, SnapshotSettings.from_environment(environ).limit)
        mirror = Mirror.from_environment(store, environ)
    if mirror is None:
        sys.exit("FARANDOLE_SNAPSHOTS_MIRROR is not set, so this hub has no mirror.")
    try:
        problems = asyncio.run(options.command(mirror, options))
    except (BusyError, MirrorError, OSError) as exc:
        problems = [str(exc)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hub.services.snapshots.mirrors")
    commands = parser.add_subparsers(required=True)
    now = commands.add_parser("now", help="mirror everything now, to a new mirror if there is none")
    now.set_defaults(command=_now)
    check = commands.add_parser("check", help="check all repositories of the mirror")
    check.add_argument("--read-data", action="store_true", help="read and verify each byte")
    check.set_defaults(command=_check)
    restore = commands.add_parser("restore", help="copy users' snapshots from the mirror to this hub")
    restore.add_argument("users", nargs="*", metavar="USER", help="whose snapshots (default: those of all users)")
    restore.set_defaults(command=_restore)
    return parser


async def _now(mirror: Mirror, _options: argparse.Namespace) -> list[str]:
    problems = await mirror.run(everything=True)
    if not problems:
        print(f"The hub's state and the snapshots of {len(mirror.record().copied)} users are mirrored.")
    return problems


async def _check(mirror: Mirror, options: argparse.Namespace) -> list[str]:
    counts, problems = await mirror.check(read_data=options.read_data)
    for name, count in counts.items():
        print(f"{name}: {count} snapshots, no errors")
    return problems


async def _restore(mirror: Mirror, options: argparse.Namespace) -> list[str]:
    problems = []
    for user in options.users or sorted(mirror.record().users.values()):
        try:
            print(f"{user}: {await mirror.restore(user)} snapshots restored")
        except ResticError as exc:
            problems.append(f"{user}: {exc}")
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
