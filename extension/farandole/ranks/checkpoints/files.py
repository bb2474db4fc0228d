"""Reads and writes checkpoints on disk.

A checkpoint is a folder ``step-<n>/`` with the files of torch.distributed.checkpoint, a pickle of the rest of the
state, and a manifest with the checksum of every file. It is written under a temporary name and renamed when it is
complete, so that readers never see a partial checkpoint, even after a crash.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import stat
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from farandole.protocol import CHECKPOINT_MANIFEST, CHECKPOINT_PREFIX, LATEST, is_number
from farandole.ranks import run
from farandole.ranks.state.nested import join, split
from farandole.reading import SMALL_JSON_BYTES, read_json
from farandole.runs.checkpoints.intact import FORMAT, DamagedError, described, verified
from farandole.runs.checkpoints.trust import check_trusted

OUTLINE = "outline.pickle"
"""File with the pickled state, in which a `farandole.ranks.state.nested.Place` replaces each tensor."""
MOVED = {"farandole.ranks.nested": "farandole.ranks.state.nested"}
"""Module names in checkpoints from earlier versions of Farandole, and the current names of these modules."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a checkpoint.

    Attributes:
        step: training step.
        state: nested state, without random states.
        rngs: random states, ordered by share of the batch. Each rank has a share of its own, unless the mesh says
            otherwise.
        seed: seed for shares that are not in ``rngs``.
        run: id of the run that wrote the checkpoint; empty outside a run.
        ranks: number of ranks that wrote the checkpoint.
    """

    step: int
    state: dict[str, Any]
    rngs: list[dict[str, Any]]
    seed: int
    run: str = ""
    ranks: int = 1


def write(folder: Path, content: Content) -> Path:
    """Write a checkpoint into ``folder`` and return its path. If this raises OSError, partial files are removed."""
    new = begin(folder, content.step)
    try:
        tensors: dict[str, torch.Tensor] = {}
        outline = split(content.state, tensors)
        write_outline(new, content, outline)
        if tensors:
            store(new, tensors)
        return complete(new, content, {path.name: described(path) for path in new.iterdir()})
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise


def begin(folder: Path, step: int) -> Path:
    """Make the temporary folder of a new checkpoint, and return its path."""
    new = temporary(folder, step)
    remove(new)
    new.mkdir(parents=True)
    return new


def temporary(folder: Path, step: int) -> Path:
    """Return the path of a checkpoint that is being written."""
    return folder / f".{CHECKPOINT_PREFIX}{step}.new"


def write_outline(new: Path, content: Content, outline: Any) -> None:
    """Write the outline of a state, from `farandole.ranks.state.nested.split`. It is the first file of a checkpoint.

    A state that cannot be pickled then costs no time for its tensors.
    """
    _write_file(new / OUTLINE, _pickled({"state": outline, "rngs": content.rngs, "seed": content.seed}))


def complete(new: Path, content: Content, files: dict[str, dict[str, Any]]) -> Path:
    """Write the manifest of a checkpoint, whose ``files`` are described by name, publish it, and return its path."""
    manifest = {
        "format": FORMAT,
        "step": content.step,
        "time": _time_after(checkpoint_paths(new.parent)),
        "ranks": content.ranks,
        "run": content.run,
        "commits": content.state.get("commits", 0),
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": dict(sorted(files.items())),
    }
    _write_file(new / CHECKPOINT_MANIFEST, json.dumps(manifest, indent=2).encode())
    # Not all files that `new.iterdir()` finds, because a network file system may list those of other ranks later.
    for path in (new, *map(new.joinpath, (*files, CHECKPOINT_MANIFEST))):
        # In some folders, new files are writable by the group, and `check_trusted` would refuse to load them.
        path.chmod(path.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    _sync(new)
    path = new.with_name(f"{CHECKPOINT_PREFIX}{content.step}")
    _publish(new, path)
    return path


def read(path: Path) -> Content:
    """Return the content of a checkpoint, with tensors on the CPU.

    Raises:
        DamagedError: the checkpoint is not intact or cannot be read.
        UntrustedError: other users may have written the checkpoint.
    """
    content = read_outline(path)
    tensors: dict[str, torch.Tensor] = {}
    state = join(content.state, tensors)
    restore(path, tensors)
    return replace(content, state=state)


def read_outline(path: Path, *, share: int = 0, shares: int = 1) -> Content:
    """Return the content of a checkpoint, with a `farandole.ranks.state.nested.Place` for each tensor.

    Of ``shares`` ranks that call this together, each verifies its share of the files.

    Raises:
        DamagedError: the checkpoint is not intact or cannot be read.
        UntrustedError: other users may have written the checkpoint.
    """
    try:
        # Checked before reading, because both the outline and the index of the tensors are pickles.
        check_trusted(path)
    except OSError as exc:
        raise DamagedError(f"it cannot be read: {exc.strerror}") from exc
    manifest = verified(path, share=share, shares=shares)
    outline = _unpickled(path / OUTLINE)
    return Content(
        step=manifest["step"],
        state=outline["state"],
        rngs=outline["rngs"],
        seed=outline["seed"],
        run=manifest.get("run", ""),
        ranks=manifest.get("ranks", len(outline["rngs"])),
    )


def restore(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Read the values of ``tensors`` from a checkpoint. Of a tensor that a mesh shards, only the rank's part is read.

    Raises DamagedError if they cannot be read.
    """
    if not tensors:
        return
    _ignore_process_group_warning()
    try:
        load(tensors, storage_reader=FileSystemReader(path), no_dist=True)
    except CheckpointException as exc:
        raise DamagedError(f"its tensors cannot be read: {_cause(exc).strerror}") from exc


def notice_damage(path: Path, damage: DamagedError) -> None:
    """Show the user a notice about a damaged checkpoint, which is ignored."""
    if path.exists():  # otherwise another rank has just deleted it, because newer checkpoints exist
        run.notice(f"the checkpoint {path} is damaged and ignored: {damage}", warning=True)


def written_after(folder: Path, run: str, commits: int) -> list[Path]:
    """Return the checkpoints of ``run`` with more than ``commits`` commits, newest first. They may be damaged."""
    found = [(path, manifest(path)) for path in checkpoint_paths(folder)]
    return [path for path, seen in found if seen.get("run") == run and seen.get("commits", 0) > commits]


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder``, newest first. They may be damaged.

    This includes a checkpoint that was moved aside to be replaced, if its writer was killed before the replacement.
    """
    aside = [path for path in folder.glob(f".{CHECKPOINT_PREFIX}*.old") if not _final_path(path).exists()]
    found = [path for path in (*folder.glob(f"{CHECKPOINT_PREFIX}*"), *aside) if path.is_dir()]
    return sorted(found, key=_age, reverse=True)


def manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint without verifying the files, or an empty dict if it cannot be read."""
    try:
        return read_json(path, CHECKPOINT_MANIFEST, SMALL_JSON_BYTES)
    except (OSError, ValueError):
        return {}


def retain(folder: Path, keep: int) -> None:
    """Remove all checkpoints except the newest ``keep``."""
    for path in checkpoint_paths(folder)[keep:]:
        remove(path)


def tidy(folder: Path) -> None:
    """Remove the temporary files of a killed writer, and restore a checkpoint that the writer was about to replace."""
    for left in folder.glob(f".{CHECKPOINT_PREFIX}*"):
        path = _final_path(left)
        if left.suffix == ".old" and not path.exists():
            left.rename(path)
        else:
            remove(left)


def remove(path: Path) -> None:
    """Remove a checkpoint. It is renamed first, so that a partially removed checkpoint is never read."""
    if not path.name.startswith("."):
        gone = path.with_name(f".{path.name}.gone")
        remove(gone)
        path = path.rename(gone)
    if path.exists():
        shutil.rmtree(path)


def _final_path(path: Path) -> Path:
    """Return the final path of a checkpoint, given that path or a temporary path such as ``.step-3.old``."""
    return path.with_name(path.stem.removeprefix(".")) if path.name.startswith(".") else path


def _pickled(outline: dict[str, Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(outline))
    except Exception as exc:  # pickling runs code of the user's classes, which may raise anything
        raise OSError(0, f"the state cannot be pickled: {exc}") from exc


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            outline: dict[str, Any] = _Unpickler(file).load()
    except OSError as exc:  # another rank may have deleted it, because newer checkpoints exist
        raise DamagedError(f"{OUTLINE} cannot be read: {exc.strerror}") from exc
    except Exception as exc:  # unpickling imports modules and runs code, which may raise anything
        raise DamagedError(f"{OUTLINE} cannot be unpickled here: {exc}") from exc
    return outline


class _Unpickler(pickle.Unpickler):
    """Finds the current classes when it unpickles outlines from earlier versions of Farandole."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(MOVED.get(module, module), name)


def store(folder: Path, tensors: dict[str, torch.Tensor], group: Any = None) -> None:
    """Write tensors into a folder: alone, or together with the other ranks of a ``group``, each of which calls this.

    Raises OSError, on all ranks if one of them cannot write.
    """
    _ignore_process_group_warning()
    try:
        save(tensors, storage_writer=FileSystemWriter(folder), process_group=group, no_dist=group is None)
    except CheckpointException as exc:
        raise _cause(exc) from exc


def _cause(exc: CheckpointException) -> OSError:
    """Return the OSError that caused ``exc``, or a new OSError with the message of ``exc`` if there is none.

    torch wraps the OSError, and may raise further errors after a failed write.
    """
    wrapped = next(iter(exc.failures.values()))[0]
    cause: BaseException | None = wrapped
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return OSError(0, str(wrapped).splitlines()[0])


def _publish(new: Path, path: Path) -> None:
    """Rename a complete checkpoint to its final path, replacing a checkpoint of the same step."""
    old = path.with_name(f".{path.name}.old")
    remove(old)
    if path.exists():
        path.rename(old)
    new.rename(path)
    _sync(path.parent)
    remove(old)


def _age(path: Path) -> tuple[float, int]:
    # Checkpoints are sorted by time before step, because the folder may also contain those of an earlier training run.
    written = manifest(path).get("time")
    if not is_number(written) or not 0 <= written < LATEST:
        written = path.stat().st_mtime if path.exists() else 0.0
    number = _final_path(path).name.removeprefix(CHECKPOINT_PREFIX)
    return float(written), int(number) if number.isdecimal() and len(number) < 20 else -1


def _time_after(found: list[Path]) -> float:
    """Return the current time. If the newest checkpoint's time lies in the future, return a slightly later time."""
    return max([time.time(), *(_age(path)[0] + 0.001 for path in found[:1])])


def _write_file(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Flush the entries of a folder to disk, so that a rename survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ignore_process_group_warning() -> None:
    """Suppress torch's warning about a missing process group, because one rank alone reads or writes a checkpoint."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
