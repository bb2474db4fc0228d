"""The model store keeps each version of a model in a folder that does not change. ``<models>/<name>/<version>/`` has

- ``model.json``, which `farandole.models.model.ModelInfo` describes;
- ``weights.safetensors``;
- ``program.pt2`` (torch.export, without weights), ``model.onnx`` and ``example.json``, if there is an example;
- ``in-use``, an empty file that each process locks that serves the version.

A group's models are in ``/groups/<group>/models``. No file is a pickle. Hidden folders beside the versions are

- ``.new-*``: a version that is being written. It is renamed when it is complete. Its ``in-use`` is locked until then;
- ``.gone-<version>-*``: a version that was removed, or version 0 for one that was never complete. The folder with the
  highest version stays, without files, so that no version is given twice. A removal needs no space on the disk,
  because it renames a folder and writes no file.

The next save or removal deletes what a process that was killed has left.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from farandole.exceptions import ModelDamagedError, ModelError, ModelInUseError, ModelNotFoundError, UsageError
from farandole.models.model import INFO_FILE, ModelInfo, StoredFile
from farandole.models.names import NAME, VERSION, ModelName, parse_key
from farandole.protocol import GROUP_FOLDERS
from farandole.reading import SMALL_JSON_BYTES, open_regular, read_json, reason
from farandole.suggestions import did_you_mean

IN_USE = "in-use"
NEW = ".new-"
GONE = re.compile(r"\.gone-([0-9]{1,9})-[0-9a-f]+")


def default_folder() -> Path:
    """Return the folder that ``$FARANDOLE_MODELS`` names. The default is ``farandole/models`` in the home folder."""
    return Path(os.environ.get("FARANDOLE_MODELS") or Path.home() / "farandole" / "models")


class ModelStore:
    """Saves, finds and removes models in the user's folder, and in those of the user's groups."""

    def __init__(self, folder: Path | None = None, *, groups: Path = Path(GROUP_FOLDERS)) -> None:
        self.folder = Path(folder or default_folder()).expanduser().absolute()
        self._groups = groups

    def save(self, name: ModelName, write: Callable[[Path], ModelInfo]) -> ModelInfo:
        """Save a new version of a model and return its info.

        ``write`` gets a folder, writes all files but ``model.json`` and ``in-use`` into it, and returns an info, whose
        version, folder and files are filled in here.

        Raises:
            ModelError: the version cannot be written, for example because the disk is full. No part of it is left.
            UsageError: there is no such group.
        """
        self.check_group(name)
        parent = self._folder(name)
        try:
            _make_folders(parent)
            _clean(parent)
            with _new_folder(parent) as new:
                info = write(new)
                files = {path.name: _seal(path) for path in sorted(new.iterdir()) if path.name != IN_USE}
                return _publish(new, replace(info, files=files))
        except OSError as exc:
            raise ModelError(
                f"the model {name} could not be saved in {parent}: {exc.strerror or exc}. Nothing was stored; make "
                "room with `%models remove`, or ask for permission to write there."
            ) from exc

    def check_group(self, name: ModelName) -> None:
        """Raise UsageError if a name begins with a group that does not have a folder here."""
        groups = [path.name for path in _folders(self._groups)]
        if name.group and name.group not in groups:
            remedy = f"your groups are {', '.join(groups)}" if groups else f"save the model as {name.model!r}"
            raise UsageError(f"there is no group {name.group!r} here; {remedy}.{did_you_mean(name.group, groups)}")

    def names(self) -> list[ModelName]:
        """Return the names of all models with at least one version, in alphabetical order, the user's own first."""
        owners = [("", self.folder), *((path.name, path / "models") for path in _folders(self._groups))]
        found = [ModelName(model=path.name, group=group) for group, folder in owners for path in _folders(folder)]
        return [name for name in found if NAME.fullmatch(str(name)) and self._versions(name)]

    def find(self, key: str) -> ModelInfo:
        """Return the info of a version. ``key`` is ``iris:3``, ``iris:latest`` or ``iris``, which is the latest, too.

        Raises:
            UsageError: the key is not valid.
            ModelNotFoundError: there is no such model or version.
            ModelDamagedError: ``model.json`` cannot be read.
        """
        return self._read(*self._chosen(key))

    def _chosen(self, key: str) -> tuple[ModelName, int]:
        name, version = parse_key(key)
        versions = self._versions(name)
        if not versions:
            known = [str(one) for one in self.names()]
            raise ModelNotFoundError(
                f"there is no model {str(name)!r} in {self._folder(name).parent}; `%models` lists the models."
                f"{did_you_mean(str(name), known)}"
            )
        if version is not None and version not in versions:
            listed = ", ".join(map(str, versions[-5:]))
            raise ModelNotFoundError(f"the model {str(name)!r} has no version {version}; the latest are {listed}.")
        return name, version or versions[-1]

    def versions(self, key: str) -> list[ModelInfo]:
        """Return all versions of the model of a key, oldest first. Skip a version that cannot be read, with a warning.

        Raises ModelNotFoundError and UsageError, as `find`.
        """
        name, _ = self._chosen(key)
        return self._readable(name)

    def copy(self, key: str) -> ModelInfo:
        """Copy a version of a group to the user's own folder, as a new version, and return the copy's info.

        Raises ModelDamagedError if the version is damaged, and the errors of `find` and `save`.
        """
        info = self.find(key)
        verify(info)

        def write(folder: Path) -> ModelInfo:
            for name in info.files:
                shutil.copyfile(info.folder / name, folder / name, follow_symlinks=False)
            return info

        own = ModelName(model=info.name.model)
        copied = self.save(own, lambda folder: replace(write(folder), name=own))
        if copied.files != info.files:
            self.remove(str(copied))
            raise ModelDamagedError(f"{key} was changed while it was copied. Copy it again.")
        return copied

    def remove(self, key: str) -> None:
        """Remove a version, which the key must name.

        Raises:
            ModelInUseError: a server serves the version.
            ModelError: the files cannot be removed.
            ModelNotFoundError, UsageError: as `find`.
        """
        name, version = parse_key(key)
        if version is None:
            self.find(key)
            versions = ", ".join(f"{name}:{one}" for one in self._versions(name))
            raise ModelNotFoundError(f"name the version to remove: {versions}")
        if version not in self._versions(name):
            self.find(key)
        folder = self._folder(name) / str(version)
        try:
            with _locked(folder, fcntl.LOCK_EX):
                gone = _rename_gone(folder, version)
        except BlockingIOError as exc:
            raise ModelInUseError(
                f"{key} is being served; stop its endpoint with `%serve stop`, or let it serve another version first."
            ) from exc
        except OSError as exc:
            raise ModelError(f"{key} could not be removed: {exc.strerror or exc}.") from exc
        try:
            _empty(gone)
        except OSError as exc:
            raise ModelError(
                f"{key} is removed, but its files could not be deleted: {exc.strerror or exc}. The next save or "
                "removal of this model tries it again."
            ) from exc
        _clean(gone.parent)

    def _folder(self, name: ModelName) -> Path:
        return (self._groups / name.group / "models" if name.group else self.folder) / name.model

    def _versions(self, name: ModelName) -> list[int]:
        return _versions_in(self._folder(name))

    def _read(self, name: ModelName, version: int) -> ModelInfo:
        folder = self._folder(name) / str(version)
        try:
            return ModelInfo.from_json(read_json(folder, INFO_FILE, SMALL_JSON_BYTES), name, folder)
        except (OSError, ValueError) as exc:
            raise ModelDamagedError(f"{name}:{version} cannot be read: {reason(exc)}.") from exc

    def _readable(self, name: ModelName) -> list[ModelInfo]:
        found = []
        for version in self._versions(name):
            try:
                found.append(self._read(name, version))
            except ModelDamagedError as error:
                warnings.warn(f"{error} It is left out.", stacklevel=3)
        return found

    def list(self) -> list[ModelInfo]:
        """Return all versions of all models, newest first. Skip a version that cannot be read, with a warning."""
        found = [info for name in self.names() for info in self._readable(name)]
        return sorted(found, key=lambda info: (info.created, str(info.name), info.version), reverse=True)


@contextmanager
def in_use(info: ModelInfo) -> Iterator[None]:
    """Keep `ModelStore.remove` from removing a version. The end of this process ends this, too.

    Raises ModelNotFoundError if the version has been removed.
    """
    try:
        with _locked(info.folder, fcntl.LOCK_SH):
            yield
    except FileNotFoundError as exc:
        raise ModelNotFoundError(f"{info} has been removed.") from exc


def verify(info: ModelInfo) -> None:
    """Compare all files of a version with the digests in its ``model.json``.

    Raises:
        ModelDamagedError: a file is missing, cannot be read, or has another content.
    """
    for name, expected in info.files.items():
        try:
            with open_regular(info.folder, name) as file:
                size, digest = os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError) as exc:
            raise ModelDamagedError(f"{info} is damaged: {reason(exc)}. Save the model again.") from exc
        if StoredFile(bytes=size, sha256=digest) != expected:
            raise ModelDamagedError(
                f"{info} is damaged: {name} has another content than when it was saved. Save the model again."
            )


def _make_folders(folder: Path) -> None:
    """Create a folder and its parents, so that they outlast a power failure."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


@contextmanager
def _new_folder(parent: Path) -> Iterator[Path]:
    """Create a folder for a new version. Delete it in the end, unless it has been renamed."""
    new = parent / f"{NEW}{secrets.token_hex(8)}"
    new.mkdir()
    try:
        unlocked = new / "unlocked"
        unlocked.touch(0o644)
        with unlocked.open("r+b") as file:
            # The lock is shared, because a server may lock the version, too, as soon as it is visible.
            fcntl.flock(file, fcntl.LOCK_SH)
            # `_clean` only deletes a folder that has a file with this name, so the file gets its name with the lock.
            unlocked.rename(new / IN_USE)
            yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _clean(parent: Path) -> None:
    """Delete what killed saves and removals have left. What cannot be deleted now is left to the next call."""
    for new in parent.glob(f"{NEW}*"):
        with suppress(OSError), _locked(new, fcntl.LOCK_EX):
            _rename_gone(new, 0)
    gone = _gone(parent)
    for version, folder in gone:
        with suppress(OSError):
            _empty(folder)
            if version == 0 or version < gone[-1][0]:
                folder.rmdir()


def _rename_gone(folder: Path, version: int) -> Path:
    return folder.rename(folder.with_name(f".gone-{version}-{secrets.token_hex(8)}"))


def _gone(parent: Path) -> list[tuple[int, Path]]:
    """Return the folders ``.gone-*``, each with its version, lowest first."""
    matches = [(GONE.fullmatch(path.name), path) for path in parent.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _seal(path: Path) -> StoredFile:
    """Write a file to the disk, make it read-only, and return its size and digest."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
        return StoredFile(bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def _publish(new: Path, info: ModelInfo) -> ModelInfo:
    """Give a complete folder the next version that is free. Several processes may do this at the same time."""
    parent = new.parent
    version = max([0, *(version for version, _ in _gone(parent)), *_versions_in(parent)])
    while True:
        version += 1
        folder = parent / str(version)
        info = replace(info, version=version, folder=folder)
        (new / INFO_FILE).unlink(missing_ok=True)
        (new / INFO_FILE).write_text(info.to_json(), encoding="utf-8")
        _seal(new / INFO_FILE)
        _sync_folder(new)
        try:
            new.rename(folder)
        except OSError as exc:
            # Another process has just published this version.
            if exc.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        else:
            _sync_name(info)
            return info


def _sync_name(info: ModelInfo) -> None:
    try:
        _sync_folder(info.folder.parent)
    except OSError as exc:
        warnings.warn(f"{info} is saved, but a power failure may undo it: {exc.strerror or exc}.", stacklevel=4)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Lock a version in this context. Raises BlockingIOError if another process has locked it in the other way."""
    # NFS locks exclusively only files that are open for writing, and shared ones may be in a folder that is read-only.
    flags = os.O_RDONLY if kind == fcntl.LOCK_SH else os.O_RDWR
    descriptor = os.open(folder / IN_USE, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _versions_in(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in _folders(folder) if VERSION.fullmatch(path.name))


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, except hidden ones, sorted by name. A folder that cannot be read has none."""
    with suppress(OSError):
        return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    return []
