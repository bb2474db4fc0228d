"""The magic ``%snapshot``. It parses its arguments, calls `Snapshots`, and shows what that returns."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from farandole.exceptions import UsageError
from farandole.notebook.arguments import parse_line, perform
from farandole.notebook.serving.tables import Table
from farandole.reading import printable
from farandole.sizes import size_text
from farandole.snapshots.choice import FILE
from farandole.snapshots.model import Change, Snapshot, TakenSnapshot, Version
from farandole.snapshots.snapshots import Snapshots
from farandole.times import time_text

ACTIONS = ("take", "list", "diff", "restore")
HEAD = ("id", "taken", "message")
MOST_CHANGES = 500
MOST_NAMES = 10


@magics_class
class SnapshotMagics(Magics):
    """The magic ``%snapshot``."""

    snapshots: Callable[[], Snapshots] = Snapshots

    @magic_arguments()
    @argument("action", help="take, list, diff or restore")
    @argument("values", nargs="*", help="the message, the path, or the times or ids of two snapshots")
    @argument("--at", metavar="TIME", help="2026-11-30T14:05, 14:05 or the id of a snapshot (default: the newest)")
    @argument("--to", metavar="DIR", help="the folder to restore to (default: where the file was)")
    @argument("--keep-both", action="store_true", help="if the path exists, restore under a name with the time")
    @argument("--help", "-h", action="store_true", help="explain the action, as `%%snapshot restore?` does")
    @line_magic
    def snapshot(self, line: str) -> Any:
        """Take, list and compare snapshots of your home, and restore files from them."""
        options = parse_line(self.snapshot, line, actions=ACTIONS)
        actions = {name: getattr(self, f"_{name}") for name in ACTIONS}
        return perform("%snapshot", options, actions, self.snapshot.parser)

    def _take(self, options: argparse.Namespace) -> None:
        """Take a snapshot, with `%snapshot take` or `%snapshot take "before cleaning"`."""
        print(_taken(self.snapshots().take(" ".join(options.values).strip())))

    def _list(self, options: argparse.Namespace) -> Table:
        """List all snapshots, newest first, or with `%snapshot list PATH` those that have a file or folder."""
        path = _only(options, "list", most=1)
        if not path:
            rows = [_row(one) for one in self.snapshots().list()]
            return Table(HEAD, rows[::-1], empty="no snapshots yet; `%snapshot take` takes one")
        rows = [(*_row(one), *_version(one)) for one in self.snapshots().list(path[0])]
        return Table((*HEAD, "kind", "size", "changed"), rows[::-1], empty=f"no snapshot has {printable(path[0])}")

    def _diff(self, options: argparse.Namespace) -> Table:
        """Show what is added (+), removed (-) or changed (M) between the two newest snapshots.

        With `%snapshot diff OLDER` or `%snapshot diff OLDER NEWER`, between two others, given by times or ids.
        """
        return _changes(self.snapshots().diff(*_only(options, "diff", most=2)))

    def _restore(self, options: argparse.Namespace) -> None:
        """Restore a file or a folder, with `%snapshot restore PATH`. Nothing is overwritten.

        Options: --at, --to, --keep-both
        """
        if not options.values:
            raise UsageError("`%snapshot restore` needs a path, such as `%snapshot restore data --at 14:05`")
        [path] = _only(options, "restore", most=1)
        at = {} if options.at is None else {"at": options.at}
        found = self.snapshots().restore(path, to=options.to, keep_both=options.keep_both, **at)
        print(f"restored: {printable(str(found))}")


def _only(options: argparse.Namespace, action: str, *, most: int) -> list[str]:
    """Return the arguments of an action. Raises UsageError if there are too many."""
    if len(options.values) > most:
        raise UsageError(
            f"`%snapshot {action}` takes at most {most} argument{'s' if most > 1 else ''}, and not "
            f"{' '.join(options.values)!r}; put quotes around an argument with spaces"
        )
    return list(options.values)


def _taken(taken: TakenSnapshot) -> str:
    """Return what a snapshot has, what is left out, and what could not be read."""
    lines = [
        f"snapshot {taken.short_id}: {taken.files:,} files with {size_text(taken.size)}; new: {size_text(taken.added)}",
        f"left out: {', '.join(map(printable, taken.left_out)) or 'nothing'} (~/{FILE} changes this)",
    ]
    if taken.unread:
        names = [printable(name) for name in taken.unread[:MOST_NAMES]]
        rest = f" and {len(taken.unread) - MOST_NAMES} more" if len(taken.unread) > MOST_NAMES else ""
        lines.append(f"not in the snapshot, because they could not be read: {', '.join(names)}{rest}")
    return "\n".join(lines)


def _row(snapshot: Snapshot) -> tuple[str, ...]:
    return snapshot.short_id, time_text(snapshot.time, precise=True), snapshot.message or "-"


def _version(version: Version) -> tuple[str, ...]:
    size = size_text(version.size) if version.kind == "file" else "-"
    return version.kind, size, time_text(version.modified, precise=True)


def _changes(changes: Sequence[Change]) -> Table:
    """Return a table with a row for each change, up to a limit."""
    rows = [(one.kind, one.path) for one in changes[:MOST_CHANGES]]
    if len(changes) > MOST_CHANGES:
        rows.append(("", f"and {len(changes) - MOST_CHANGES:,} more; `fd.Snapshots().diff()` returns all"))
    return Table(("", "path"), rows, empty="no differences")
