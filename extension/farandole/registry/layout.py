"""Writes images to files, for users who may not write to a registry and for machines without one.

A file has the OCI image layout, and also the ``manifest.json`` that `docker load` of engines before version 25 needs.

Source: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from farandole.exceptions import RegistryError, UsageError
from farandole.reading import reason
from farandole.registry.archive import END, file_entry
from farandole.registry.client import digest_of
from farandole.registry.image import ModelImage
from farandole.registry.layer import pieces


def write_layout(image: ModelImage, path: Path, name: str) -> int:
    """Write an image to a new tar file, and return its size in bytes.

    Args:
        image: the image. The layers of its serving image are read from their registry.
        path: the file, which appears when it is complete.
        name: the name that the image gets when it is loaded, such as ``iris:3``.

    Raises:
        UsageError: there is a file with this name.
        RegistryError: the serving image cannot be read, or the file cannot be written.
        ModelDamagedError: the files of the model cannot be read.
    """
    if path.exists():
        raise UsageError(f"{path} exists already; name another file with `--file`")
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with new.open("xb") as file:
            for each, size, content in _entries(image, name):
                file.writelines(file_entry(each, size, content))
            file.write(END)
            os.fsync(file.fileno())
        _rename(new, path)
    except FileExistsError as exc:
        raise UsageError(f"{path} exists already; name another file with `--file`") from exc
    except (OSError, ValueError) as exc:
        raise RegistryError(f"{path} could not be written: {reason(exc)}.") from exc
    finally:
        with suppress(OSError):
            new.unlink()
    return path.stat().st_size


def _rename(new: Path, path: Path) -> None:
    """Rename ``new`` to ``path``. Raises FileExistsError if ``path`` exists."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems, such as FAT, do not support hard links.
        path.touch(exist_ok=False)
        new.replace(path)


def _entries(image: ModelImage, name: str) -> Iterator[tuple[str, int, Iterator[bytes]]]:
    """Return the name, the size and the content of each file."""
    manifest, config = image.manifest, digest_of(image.config)
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": manifest.media_type,
                "digest": manifest.digest,
                "size": len(manifest.content),
                "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
            }
        ],
    }
    layers = [_blob(one["digest"]) for one in (*image.base.layers, {"digest": image.layer.digest})]
    docker = [{"Config": _blob(config), "RepoTags": [name], "Layers": layers}]
    for each, content in {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps(index).encode(),
        "manifest.json": json.dumps(docker).encode(),
        _blob(manifest.digest): manifest.content,
        _blob(config): image.config,
    }.items():
        yield each, len(content), iter([content])
    base = image.base
    for one in base.layers:
        yield (
            _blob(one["digest"]),
            one["size"],
            base.registry.blob(base.reference.repository, one["digest"], one["size"]),
        )
    yield _blob(image.layer.digest), image.layer.size, pieces(image.layer.info)


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
