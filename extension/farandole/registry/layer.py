"""The layer of an image that has a version of a model: a tar file, with the same bytes whenever it is made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from farandole.exceptions import ModelDamagedError
from farandole.models.folders import IN_USE
from farandole.models.model import INFO_FILE, ModelInfo
from farandole.reading import SMALL_JSON_BYTES, open_regular, read_bytes, reason
from farandole.registry.archive import END, file_entry, folder_entry
from farandole.registry.transport import CHUNK_BYTES

MODELS = "/models"
"""The model store in an image."""
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


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
    model = f"{MODELS.lstrip('/')}/{info.name.model}"
    inside = f"{model}/{info.version}"
    for folder in (MODELS.lstrip("/"), model, inside):
        yield folder_entry(folder)
    try:
        about = read_bytes(info.folder, INFO_FILE, SMALL_JSON_BYTES)
        yield from file_entry(f"{inside}/{INFO_FILE}", len(about), iter([about]))
        yield from file_entry(f"{inside}/{IN_USE}", 0, iter([]))
        for name, stored in sorted(info.files.items()):
            yield from file_entry(f"{inside}/{name}", stored.bytes, _content(info, name))
    except (OSError, ValueError) as exc:
        raise ModelDamagedError(f"{info} is damaged: {reason(exc)}. Save the model again.") from exc
    yield END


def _content(info: ModelInfo, name: str) -> Iterator[bytes]:
    with open_regular(info.folder, name) as file:
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")
