"""The layer of an image that has a version of a model: a tar file, with the same bytes whenever it is made."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from farandole.exceptions import ModelDamagedError
from farandole.models.folders import IN_USE
from farandole.models.model import INFO_FILE, ModelInfo
from farandole.reading import SMALL_JSON_BYTES, open_regular, read_bytes, reason

MODELS = "/models"
"""The model store in an image."""
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CHUNK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer that was measured.

    Attributes:
        info: the version.
        digest: the SHA-256 of the tar file, with ``sha256:``.
        size: its size in bytes.
    """

    info: ModelInfo
    digest: str
    size: int

    @classmethod
    def of(cls, info: ModelInfo) -> Layer:
        """Measure the layer of a version. Raises ModelDamagedError if its files cannot be read."""
        found, size = hashlib.sha256(), 0
        for piece in pieces(info):
            found.update(piece)
            size += len(piece)
        return cls(info=info, digest=f"sha256:{found.hexdigest()}", size=size)


def pieces(info: ModelInfo) -> Iterator[bytes]:
    """Return the tar file in pieces. Raises ModelDamagedError if a file cannot be read, or has another size.

    The files belong to root and cannot be written, so the server in the image trusts them.
    """
    folder = PurePosixPath(MODELS.lstrip("/"))
    for each in (folder, folder / info.name.model, folder / info.name.model / str(info.version)):
        yield _header(each, 0, folder=True)
    inside = folder / info.name.model / str(info.version)
    try:
        about = read_bytes(info.folder, INFO_FILE, SMALL_JSON_BYTES)
        yield from _file(inside / INFO_FILE, len(about), iter([about]))
        yield from _file(inside / IN_USE, 0, iter([]))
        for name, stored in sorted(info.files.items()):
            yield from _file(inside / name, stored.bytes, _content(info, name))
    except (OSError, ValueError) as exc:
        raise ModelDamagedError(f"{info} is damaged: {reason(exc)}. Save the model again.") from exc
    yield bytes(2 * tarfile.BLOCKSIZE)


def _content(info: ModelInfo, name: str) -> Iterator[bytes]:
    with open_regular(info.folder, name) as file:
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")


def _file(path: PurePosixPath, size: int, content: Iterator[bytes]) -> Iterator[bytes]:
    yield _header(path, size)
    count = 0
    for piece in content:
        count += len(piece)
        yield piece
    if count != size:
        raise ValueError(f"{path.name!r} has {count} bytes instead of {size}")
    yield bytes(-size % tarfile.BLOCKSIZE)


def _header(path: PurePosixPath, size: int, *, folder: bool = False) -> bytes:
    entry = tarfile.TarInfo(f"{path}/" if folder else str(path))
    entry.size = size
    entry.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    entry.mode = 0o755 if folder else 0o444
    return entry.tobuf(tarfile.PAX_FORMAT)
