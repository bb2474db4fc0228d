"""Decides which checkpoints may be unpickled, because unpickling can run code that the author of a file chose."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from farandole.protocol import GROUP_FOLDERS


class UntrustedError(Exception):
    """Raised before unpickling a checkpoint that other users may have written. The message names a remedy."""


def check_trusted(path: Path, *, groups: Path = Path(GROUP_FOLDERS)) -> None:
    """Raise `UntrustedError` unless only this user and root can write to a checkpoint's folder and files.

    On the servers of a hub, all users have the same user id, so the owner of a file in a group's folder proves nothing.
    Checkpoints below ``groups`` are therefore always refused.
    """
    real = path.resolve()
    if real.is_relative_to(groups.resolve()):
        raise UntrustedError(_refusal(path, f"{real} is in the folder of a group, where all members can write"))
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
    """Return whether a group counts as private: root's group, or the group whose id is the user's id.

    Many systems give each user a group with the user's id. On Kubernetes, this group can write to a volume's files.
    """
    return group in {0, os.geteuid()}


def _refusal(path: Path, fault: str) -> str:
    return (
        f"the checkpoint {path} is not loaded, because other users may have written it and loading it runs their code: "
        f"{fault}. If you trust all who can write there, copy the checkpoint to your home (`cp -r`) and resume from "
        "the folder that holds the copy."
    )
