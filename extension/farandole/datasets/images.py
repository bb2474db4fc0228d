"""Columns of images, which are decoded when rows are read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from farandole.datasets.columns import ValueColumn
from farandole.datasets.mapped import MappedTable, Numbers
from farandole.datasets.places import cause
from farandole.exceptions import UsageError

UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
"""What Pillow raises for files that it cannot decode."""


class ImageColumn:
    """A column with the bytes of image files, with names of files in ``folder``, or with both.

    Without a folder, because the table is in an object store, there are only bytes.
    """

    def __init__(self, table: MappedTable, name: str, folder: Path | None) -> None:
        kind = table.schema.field(name).type
        if not _has_images(kind):
            raise UsageError(
                f"fd.dataset: the column {name!r} is of the type {kind}. A column of `images` has the bytes of image "
                "files, or the names of files."
            )
        self._name = name
        self._folder = folder
        self._values = ValueColumn(table, name)
        self._table = table

    def take(self, which: Numbers, local: Numbers) -> list[torch.Tensor]:
        """Return the images of rows as tensors of the type uint8 and the shape [3, height, width]."""
        found = zip(self._values.take(which, local), which.tolist(), local.tolist(), strict=True)
        return [self._decoded(value, self._table.start(batch) + row) for value, batch, row in found]

    def _decoded(self, value: Any, row: int) -> torch.Tensor:
        try:
            with Image.open(self._file(value)) as image:
                pixels = np.array(image.convert("RGB"))
        except UNREADABLE as exc:
            raise UsageError(
                f"fd.dataset: the image of row {row} in the column {self._name!r} cannot be decoded: {cause(exc)}. "
                "Remove the row from the table, or correct it."
            ) from exc
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()

    def _file(self, value: Any) -> Any:
        """Return what Pillow opens: bytes, or the path of a file. Raises ValueError if there is neither."""
        if isinstance(value, dict):
            value = value["path"] if value.get("bytes") is None else value["bytes"]
        if value is None:
            raise ValueError("the value is missing")
        if isinstance(value, bytes):
            return io.BytesIO(value)
        if self._folder is None:
            raise ValueError("it is the name of a file, and a table in an object store must have the bytes of images")
        return self._folder / value


def _has_images(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_images(kind.value_type)
    if pa.types.is_struct(kind):
        names = {field.name: field.type for field in kind}
        return names.keys() >= {"bytes", "path"} and all(_has_images(names[name]) for name in ("bytes", "path"))
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_string(kind) or types.is_large_string(kind)
    )
