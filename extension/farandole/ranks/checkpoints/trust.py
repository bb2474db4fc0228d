"""Which checkpoints may be unpickled: unpickling runs code that whoever writes the files can choose."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from farandole.protocol import GROUP_FOLDERS


class UntrustedError(Exception):
    """Raised before a checkpoint is unpickled that other users may have written; names the remedy."""


def check_trusted(path: Path, *, groups: Path = Path(GROUP_FOLDERS)) -> None:
    """Raise `UntrustedError` unless only this user and root can write a checkpoint's folder and its files.

    In the servers of a hub all users have the same user id, so the owner of a file in a group's folder says nothing:
    checkpoints below ``groups`` are always refused.
    """
    real = path.resolve()
    if real.is_relative_to(groups.resolve()):
        raise UntrustedError(_refusal(path, f"{real} is in the folder of a group, where all members write"))
    for each in (real, *real.iterdir()):
        if fault := _fault(each.lstat()):
            raise UntrustedError(_refusal(path, f"{each} {fault}"))


def _fault(found: os.stat_result) -> str | None:
    if found.st_uid not in {0, os.geteuid()}:
        return f"belongs to user id {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by all users; if nobody did, run `chmod -R go-w` on the checkpoint"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"can be written by the group {found.st_gid}; if nobody did, run `chmod -R go-w` on the checkpoint"
    return None


def _is_private(group: int) -> bool:
    """Return whether a group is the user's own: many systems give each user a group with the number of the user.

    Kubernetes lets that group write all files of a volume.
    """
    return group in {0, os.geteuid()}


def _refusal(path: Path, fault: str) -> str:
    return (
        f"the checkpoint {path} is not loaded, because other users may have written it and loading it runs their code: "
        f"{fault}. If you trust all who can write there, copy the checkpoint to your home (`cp -r`) and resume from "
        "the folder that holds the copy."
    )
