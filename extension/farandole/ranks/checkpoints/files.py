"""Checkpoints on disk: ``step-<n>/`` holds torch.distributed.checkpoint's files, the rest of the state, and a manifest.

A checkpoint is written beside its place and renamed once it is whole, so a reader, or a crash, finds all of it or
nothing. The manifest holds the checksum of every file.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from farandole.protocol import CHECKPOINT_MANIFEST, CHECKPOINT_PREFIX
from farandole.ranks.state.nested import join, split

OUTLINE = "outline.pickle"
FORMAT = 1
MOVED = {"farandole.ranks.nested": "farandole.ranks.state.nested"}
"""Modules whose names are in the outlines of earlier versions, with their names of today."""


class DamagedError(Exception):
    """Raised when a checkpoint is not what was written; says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a checkpoint holds: the state, the random numbers of each rank, a seed for ranks that had none.

    ``run`` is the run that wrote it, empty without one.
    """

    step: int
    state: dict[str, Any]
    rngs: list[dict[str, Any]]
    seed: int
    run: str = ""


def write(folder: Path, content: Content) -> Path:
    """Write a checkpoint into ``folder`` and return its place. Raises: OSError, and leaves nothing behind then."""
    place = folder / f"{CHECKPOINT_PREFIX}{content.step}"
    fresh = folder / f".{place.name}.new"
    remove(fresh)
    fresh.mkdir(parents=True)
    try:
        _write_files(fresh, content)
        _put(fresh, place)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return place


def read(place: Path) -> Content:
    """Return what a checkpoint holds, tensors on the CPU.

    Raises: DamagedError where a checksum does not fit, or it cannot be read.
    """
    manifest = _verified(place)
    outline = _unpickled(place / OUTLINE)
    tensors: dict[str, torch.Tensor] = {}
    state = join(outline["state"], tensors)
    if tensors:
        _quietly()
        try:
            load(tensors, storage_reader=FileSystemReader(place), no_dist=True)
        except CheckpointException as exc:
            raise DamagedError(f"its tensors cannot be read: {_cause(exc).strerror}") from exc
    return Content(
        step=manifest["step"], state=state, rngs=outline["rngs"], seed=outline["seed"], run=manifest.get("run", "")
    )


def ahead(folder: Path, run: str, commits: int) -> list[Path]:
    """Return the checkpoints in ``folder`` that this run wrote after so many commits, newest first, whole or not."""
    found = [(place, _glance(place)) for place in places(folder)]
    return [place for place, seen in found if seen.get("run") == run and seen.get("commits", 0) > commits]


def places(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder``, newest first, whole or not.

    One that a killed writer was about to replace, and had put aside, is among them.
    """
    aside = [path for path in folder.glob(f".{CHECKPOINT_PREFIX}*.old") if not _place_of(path).exists()]
    found = [path for path in (*folder.glob(f"{CHECKPOINT_PREFIX}*"), *aside) if path.is_dir()]
    return sorted(found, key=_age, reverse=True)


def retain(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest ``keep``."""
    for place in places(folder)[keep:]:
        remove(place)


def tidy(folder: Path) -> None:
    """Clear away what a killed writer left, and put back what it was about to replace."""
    for left in folder.glob(f".{CHECKPOINT_PREFIX}*"):
        place = _place_of(left)
        if left.suffix == ".old" and not place.exists():
            left.rename(place)
        else:
            remove(left)


def remove(place: Path) -> None:
    """Remove a checkpoint; one that is half removed no longer looks like one."""
    if not place.name.startswith("."):
        gone = place.with_name(f".{place.name}.gone")
        remove(gone)
        place = place.rename(gone)
    if place.exists():
        shutil.rmtree(place)


def _place_of(path: Path) -> Path:
    """Return the place of a checkpoint, also of one that is on its way there or away: ``.step-3.old``."""
    return path.with_name(path.stem.removeprefix(".")) if path.name.startswith(".") else path


def _write_files(fresh: Path, content: Content) -> None:
    tensors: dict[str, torch.Tensor] = {}
    outline = {"state": split(content.state, tensors), "rngs": content.rngs, "seed": content.seed}
    _write_file(fresh / OUTLINE, _pickled(outline))
    if tensors:
        _write_tensors(fresh, tensors)
    files = {path.name: _described(path) for path in sorted(fresh.iterdir())}
    manifest = {
        "format": FORMAT,
        "step": content.step,
        "time": _time_after(places(fresh.parent)),
        "ranks": len(content.rngs),
        "run": content.run,
        "commits": content.state.get("commits", 0),
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": files,
    }
    _write_file(fresh / CHECKPOINT_MANIFEST, json.dumps(manifest, indent=2).encode())
    _sync(fresh)


def _pickled(outline: dict[str, Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(outline))
    except Exception as exc:  # pickling runs code of the user's objects, which may raise anything
        raise OSError(0, f"the state cannot be pickled: {exc}") from exc


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            outline: dict[str, Any] = _Unpickler(file).load()
    except OSError as exc:  # another rank may have removed it since: newer ones have taken its place
        raise DamagedError(f"{OUTLINE} cannot be read: {exc.strerror}") from exc
    except Exception as exc:  # unpickling imports modules and runs code, which may raise anything
        raise DamagedError(f"{OUTLINE} cannot be unpickled here: {exc}") from exc
    return outline


class _Unpickler(pickle.Unpickler):
    """Finds the classes of an outline, also where earlier versions of Farandole had them."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(MOVED.get(module, module), name)


def _write_tensors(fresh: Path, tensors: dict[str, torch.Tensor]) -> None:
    _quietly()
    try:
        save(tensors, storage_writer=FileSystemWriter(fresh), no_dist=True)
    except CheckpointException as exc:
        raise _cause(exc) from exc


def _cause(exc: CheckpointException) -> OSError:
    """Return what went wrong: where a write failed, torch goes on to complain of what that left, and wraps it all."""
    wrapped = next(iter(exc.failures.values()))[0]
    cause: BaseException | None = wrapped
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return OSError(0, str(wrapped).splitlines()[0])


def _put(fresh: Path, place: Path) -> None:
    """Rename a whole checkpoint to its place; one of the same step there is replaced."""
    old = place.with_name(f".{place.name}.old")
    remove(old)
    if place.exists():
        place.rename(old)
    fresh.rename(place)
    _sync(place.parent)
    remove(old)


def _verified(place: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((place / CHECKPOINT_MANIFEST).read_bytes())
        for name, wanted in manifest["files"].items():
            if _described(place / name) != wanted:
                raise DamagedError(f"{name} is not what was written")
        if manifest["format"] != FORMAT:
            raise DamagedError(f"its format is {manifest['format']}, and this version of farandole reads {FORMAT}")
    except FileNotFoundError as exc:
        raise DamagedError(f"{Path(exc.filename).name} is missing") from exc
    except OSError as exc:
        raise DamagedError(f"{Path(exc.filename or place).name} cannot be read: {exc.strerror}") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise DamagedError(f"{CHECKPOINT_MANIFEST} cannot be read") from exc
    return manifest


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _glance(place: Path) -> dict[str, Any]:
    """Return the manifest without a look at the files; empty where it cannot be read."""
    try:
        manifest = json.loads((place / CHECKPOINT_MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _age(place: Path) -> tuple[float, int]:
    # The time it was written before its step: a folder may hold checkpoints of an earlier training.
    try:
        written = float(_glance(place)["time"])
    except (ValueError, KeyError, TypeError):
        written = place.stat().st_mtime if place.exists() else 0.0
    number = _place_of(place).name.removeprefix(CHECKPOINT_PREFIX)
    return written, int(number) if number.isdigit() else -1


def _time_after(found: list[Path]) -> float:
    """Return the time, or one after all that were written where this machine's clock is behind theirs."""
    return max([time.time(), *(_age(place)[0] + 0.001 for place in found[:1])])


def _write_file(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _quietly() -> None:
    """Spare the user torch's remark that no process group takes part: none is meant to."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
