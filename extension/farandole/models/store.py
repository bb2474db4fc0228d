"""The model store keeps each version of a model in a folder that does not change. ``<models>/<name>/<version>/`` has

- ``model.json``, which `farandole.models.model.ModelInfo` describes;
- ``weights.safetensors``;
- ``program.pt2`` (torch.export, without weights), ``model.onnx`` and ``example.json``, if there is an example;
- ``in-use``, an empty file. Each process that serves the version locks it.

A group's models are in ``/groups/<group>/models``. No file is a pickle. Links below ``/groups/<group>`` and below the
user's own ``<models>`` are not followed. Hidden folders beside the versions are

- ``.new-*``: a version that is being written. It is renamed when it is complete. Its ``in-use`` is locked until then;
- ``.gone-<version>-*``: a version that was removed, or version 0 for one that was never complete. The folder with the
  highest version stays, without files, so that no version is given twice. A removal needs no space on the disk,
  because it renames a folder and writes no file.

The next save or removal deletes what a process that was killed has left. A version for a group is first written in a
folder ``.new-*`` in the user's own ``<models>``, which the next save for a group deletes.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

from farandole.exceptions import ModelDamagedError, ModelError, ModelInUseError, ModelNotFoundError, UsageError
from farandole.models import folders
from farandole.models.model import INFO_FILE, ModelInfo, StoredFile
from farandole.models.names import NAME, VERSION, ModelName, parse_key
from farandole.protocol import GROUP_FOLDERS
from farandole.reading import SMALL_JSON_BYTES, open_regular, read_json, reason
from farandole.suggestions import did_you_mean


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
        version, folder and files are filled in here. The files for a group are written in the user's own folder and
        then copied, because other members could plant links beside them while they are written.

        Raises:
            ModelError: the version cannot be written, for example because the disk is full. No part of it is left.
            UsageError: there is no such group.
        """
        self.check_group(name)
        try:
            with self._opened(name.group, name.model, create=True) as parent:
                folders.clean(parent)
                with folders.new_folder(parent) as new:
                    return _publish(new, self._folder(name), self._written(name, new, write))
        except OSError as exc:
            where = f"{self._folder(name)}{f' by way of {self.folder}' if name.group else ''}"
            raise ModelError(
                f"the model {name} could not be saved in {where}: {exc.strerror or exc}. Nothing was stored; make "
                "room with `%models remove`, or ask for permission to write there."
            ) from exc

    def _written(self, name: ModelName, new: folders.NewFolder, write: Callable[[Path], ModelInfo]) -> ModelInfo:
        """Write the files of a new version, and return its info with them."""
        if not name.group:
            info = write(self._folder(name) / new.name)
            return replace(info, files=folders.seal(new.own))
        folders.make_folders(self.folder)
        with folders.opened(self.folder, may_be_link=True) as own:
            folders.clean(own)
            with folders.new_folder(own) as written:
                info = write(self.folder / written.name)
                info = replace(info, files=folders.seal(written.own))
                for file in info.files:
                    folders.copy_file(self.folder / written.name, file, new.own)
                return info

    def check_group(self, name: ModelName) -> None:
        """Raise UsageError if a name begins with a group that does not have a folder here."""
        groups = self._group_names()
        if name.group and name.group not in groups:
            remedy = f"your groups are {', '.join(groups)}" if groups else f"save the model as {name.model!r}"
            raise UsageError(f"there is no group {name.group!r} here; {remedy}.{did_you_mean(name.group, groups)}")

    def names(self) -> list[ModelName]:
        """Return the names of all models with at least one version, in alphabetical order, the user's own first."""
        names = [ModelName(model=one, group=group) for group in ("", *self._group_names()) for one in self._in(group)]
        return [name for name in names if NAME.fullmatch(str(name)) and self._versions(name)]

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
            try:
                with folders.opened(folder) as target:
                    for name in info.files:
                        folders.copy_file(info.folder, name, target)
            except (FileNotFoundError, ValueError) as exc:
                raise ModelDamagedError(f"{key} was changed while it was copied. Copy it again.") from exc
            return replace(info, name=own)

        own = ModelName(model=info.name.model)
        copied = self.save(own, write)
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
        try:
            with ExitStack() as stack:
                parent = stack.enter_context(self._opened(name.group, name.model))
                with folders.locked(str(version), fcntl.LOCK_EX, parent):
                    gone = folders.rename_gone(str(version), version, parent)
                held = stack.pop_all()
        except BlockingIOError as exc:
            raise ModelInUseError(
                f"{key} is being served; stop its endpoint with `%serve stop`, or let it serve another version first."
            ) from exc
        except OSError as exc:
            raise ModelError(f"{key} could not be removed: {exc.strerror or exc}.") from exc
        with held:
            _delete_files(key, gone, parent)

    def _folder(self, name: ModelName) -> Path:
        return (self._groups / name.group / "models" if name.group else self.folder) / name.model

    @contextmanager
    def _opened(self, group: str, *names: str, create: bool = False) -> Iterator[int]:
        """Open a folder in the user's own store, or in the one of a group, without following links below it."""
        root, below = (self._groups / group, ("models", *names)) if group else (self.folder, names)
        if create and not group:
            folders.make_folders(root)
        with ExitStack() as stack:
            folder = stack.enter_context(folders.opened(root, may_be_link=True))
            for each in below:
                if create:
                    folders.make_folder(each, folder)
                folder = stack.enter_context(folders.opened(each, folder))
            yield folder

    def _group_names(self) -> list[str]:
        with suppress(OSError):
            return sorted(path.name for path in self._groups.iterdir() if path.is_dir())
        return []

    def _in(self, group: str) -> list[str]:
        with suppress(OSError), self._opened(group) as folder:
            return folders.folders_in(folder)
        return []

    def _versions(self, name: ModelName) -> list[int]:
        with suppress(OSError), self._opened(name.group, name.model) as folder:
            return folders.versions_in(folder)
        return []

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

    Raises:
        ModelNotFoundError: the version has been removed, or is being removed.
        ModelDamagedError: the version cannot be locked.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(folders.locked(info.folder, fcntl.LOCK_SH))
        except (FileNotFoundError, BlockingIOError) as exc:
            raise ModelNotFoundError(f"{info} has been removed.") from exc
        except OSError as exc:
            raise ModelDamagedError(f"{info} is damaged: {exc.strerror or exc}. Save the model again.") from exc
        yield


def verify(info: ModelInfo) -> None:
    """Compare all files of a version with the digests in its ``model.json``.

    Raises:
        ModelDamagedError: a file is missing, cannot be read, or has another content.
    """
    for name, expected in info.files.items():
        try:
            with open_regular(info.folder, name) as file:
                unchanged = _is(file, expected)
        except (OSError, ValueError) as exc:
            raise ModelDamagedError(f"{info} is damaged: {reason(exc)}. Save the model again.") from exc
        if not unchanged:
            raise ModelDamagedError(
                f"{info} is damaged: {name} has another content than when it was saved. Save the model again."
            )


def _is(file: BufferedReader, expected: StoredFile) -> bool:
    size = os.fstat(file.fileno()).st_size
    return size == expected.bytes and hashlib.file_digest(file, "sha256").hexdigest() == expected.sha256


def _delete_files(key: str, gone: str, parent: int) -> None:
    try:
        folders.empty(gone, parent)
    except OSError as exc:
        raise ModelError(
            f"{key} is removed, but its files could not be deleted: {exc.strerror or exc}. The next save or "
            "removal of this model tries it again."
        ) from exc
    with suppress(OSError):
        folders.clean(parent)


def _publish(new: folders.NewFolder, parent: Path, info: ModelInfo) -> ModelInfo:
    """Give a complete folder the next version that is free. Several processes may do this at the same time."""
    # A removal renames a version to a folder `.gone-*`, so they are listed in this order.
    taken = [*folders.versions_in(new.parent), *(version for version, _ in folders.gone(new.parent))]
    version = max(taken, default=0)
    while True:
        version += 1
        if VERSION.fullmatch(str(version)) is None:
            raise ModelError(f"{info.name} has no free version after {version - 1}; save it under another name.")
        info = replace(info, version=version, folder=parent / str(version))
        folders.write_new(INFO_FILE, info.to_json(), new.own)
        os.fsync(new.own)
        try:
            os.rename(new.name, str(version), src_dir_fd=new.parent, dst_dir_fd=new.parent)
        except OSError as exc:
            # Another process has just published this version, or there is a file with its name.
            if exc.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
        else:
            _sync_name(info, new.parent)
            return info


def _sync_name(info: ModelInfo, parent: int) -> None:
    try:
        os.fsync(parent)
    except OSError as exc:
        warnings.warn(f"{info} is saved, but a power failure may undo it: {exc.strerror or exc}.", stacklevel=4)
