"""Writes a model of a checkpoint to one file of safetensors, one tensor after another."""

from __future__ import annotations

import io
import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from farandole.exceptions import ModelError, UsageError
from farandole.reading import open_new
from farandole.runs.checkpoints.intact import DamagedError, verified
from farandole.runs.checkpoints.trust import UntrustedError, check_trusted

METADATA = ".metadata"
"""The index of the tensors, from torch.distributed.checkpoint. A checkpoint without tensors has none."""
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The names of dtypes in the header of a file. Source: https://huggingface.co/docs/safetensors/index#format"""
ALIGNMENT = 8
"""The data begins at a multiple of this number of bytes, so that readers can map it into memory."""


def write_model(checkpoint: Path, name: str, path: Path) -> None:
    """Write the model ``name`` of a checkpoint to the file ``path``.

    The library safetensors writes only models that are in memory as a whole.

    Raises:
        UsageError: other users may have written the checkpoint, or it has no such model, or the format has no such
            dtype.
        ModelError: the checkpoint is damaged, or the file cannot be written.
    """
    tensors = _stored(checkpoint, name)
    new = path.with_name(f".{path.name}.new")
    try:
        with io.BufferedWriter(open_new(new)) as file:
            file.write(_header(tensors.entries))
            for key in tensors.entries:
                file.write(_bytes(tensors.read(key)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as exc:
        raise ModelError(f"the model cannot be written to {path}: {exc.strerror or exc}") from exc
    finally:
        with suppress(OSError):
            new.unlink()


class StoredModel:
    """The tensors of a model in a checkpoint. They are read one at a time."""

    def __init__(self, checkpoint: Path, name: str) -> None:
        self._prefix = f"parts/{name}/"
        self._reader = FileSystemReader(checkpoint)
        self._metadata = self._reader.read_metadata()
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
        every = self._metadata.state_dict_metadata
        found = {
            key.removeprefix(self._prefix): entry
            for key, entry in every.items()
            if key.startswith(self._prefix) and isinstance(entry, TensorStorageMetadata)
        }
        # The widest first, so that the data of each tensor begins at a multiple of its item size.
        self.entries = dict(sorted(found.items(), key=lambda item: -item[1].properties.dtype.itemsize))
        """The shape and the dtype of each tensor, by its name in the model."""
        self.parts = sorted({key.split("/")[1] for key in every if key.startswith("parts/")})
        """The names of all parts of the state that have tensors."""

    def read(self, key: str) -> torch.Tensor:
        """Return a whole tensor."""
        entry = self.entries[key]
        found = torch.empty(entry.size, dtype=entry.properties.dtype)
        planner = DefaultLoadPlanner()
        planner.set_up_planner({f"{self._prefix}{key}": found}, self._metadata, is_coordinator=True)
        self._reader.read_data(planner.create_local_plan(), planner).wait()
        return found


def _stored(checkpoint: Path, name: str) -> StoredModel:
    try:
        # Checked before reading, because the index of the tensors is a pickle.
        check_trusted(checkpoint)
        manifest = verified(checkpoint)
    except UntrustedError as exc:
        raise UsageError(str(exc)) from exc
    except (DamagedError, OSError) as exc:
        raise ModelError(
            f"the checkpoint {checkpoint} is damaged: {exc}; choose another one with step=..., from run.checkpoints."
        ) from exc
    found = StoredModel(checkpoint, name) if METADATA in manifest["files"] else None
    if found is None or not found.entries:
        parts = ", ".join(map(repr, found.parts)) if found is not None else "nothing with tensors"
        raise UsageError(
            f"the checkpoint {checkpoint} has no model {name!r}; it has {parts}. Pass name=..., as in fd.state."
        )
    for key, entry in found.entries.items():
        if entry.properties.dtype not in DTYPES:
            raise UsageError(
                f"a file of safetensors has no {entry.properties.dtype}, the dtype of {key!r}; convert it before the "
                "checkpoint is written, for example to torch.float32."
            )
    return found


def _header(entries: dict[str, TensorStorageMetadata]) -> bytes:
    # The library transformers refuses files without this format.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for key, entry in entries.items():
        begin, end = end, end + entry.size.numel() * entry.properties.dtype.itemsize
        header[key] = {
            "dtype": DTYPES[entry.properties.dtype],
            "shape": list(entry.size),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _bytes(tensor: torch.Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
