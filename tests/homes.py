"""A folder with files that are not easy to restore, and what a restored folder must have in common with it."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "plain.txt"
SPARSE = "sparse"
SPARSE_BYTES = 8 * 2**20
MODIFIED = 1_600_000_000


def make_strange(folder: Path) -> None:
    """Create the folder: names that are no text, hard links, links, a pipe, a socket, holes and permissions."""
    folder.mkdir()
    (folder / PLAIN).write_text("first")
    (folder / PLAIN).chmod(0o640)
    os.utime(folder / PLAIN, (MODIFIED, MODIFIED))
    (folder / "two\nlines").write_text("newline")
    (folder / os.fsdecode(b"latin-\xe9")).write_text("latin")
    (folder / "a*[b]?\\c").write_text("wildcards")
    (folder / "abXc").write_text("matches them")
    os.link(folder / PLAIN, folder / "hard.txt")
    (folder / "link").symlink_to(PLAIN)
    with (folder / SPARSE).open("wb") as file:
        file.truncate(SPARSE_BYTES)
        file.write(b"begin")
    os.mkfifo(folder / "pipe")
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    (folder / "locked").mkdir()
    (folder / "locked" / "secret").write_text("read only")
    (folder / "locked").chmod(0o500)


def facts(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Return type, permissions, time, content and links of all that is below a folder, except sockets.

    Snapshots have no sockets, because only a running program can make them.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        one = path.lstat()
        if not stat.S_ISSOCK(one.st_mode):
            found[str(path.relative_to(folder))] = (one.st_mode, one.st_mtime_ns, one.st_nlink, _content(path))
    return found


def _content(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
