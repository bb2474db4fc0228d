"""Decides which checkpoints may be unpickled, because unpickling can run code that the author of a file chose."""

from __future__ import annotations

from pathlib import Path

from farandole.protocol import GROUP_FOLDERS
from farandole.reading import other_writer


class UntrustedError(Exception):
    """Raised before unpickling a checkpoint that other users may have written. The message names a remedy."""


def check_trusted(path: Path, *, groups: Path = Path(GROUP_FOLDERS)) -> None:
    """Raise `UntrustedError` unless only this user and root can write to a checkpoint's folder and files."""
    if fault := other_writer(path, groups):
        raise UntrustedError(_refusal(path, fault))


def _refusal(path: Path, fault: str) -> str:
    return (
        f"the checkpoint {path} is not loaded, because other users may have written it and loading it runs their code: "
        f"{fault}. If you trust all who can write there, copy the checkpoint to your home (`cp -r`) and resume from "
        "the folder that holds the copy."
    )
