"""Writes a model of a checkpoint to one file of safetensors, one tensor after another."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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

PART_KEY = re.compile(r"(stages/\d+/)?parts/(?P<part>[^/]+)/(?P<tensor>.+)")
"""The key of a tensor that belongs to a part of the state. With a pipeline, each rank has the parts of its stages."""
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


def write_model(checkpoints: Sequence[Path], name: str, path: Path) -> None:
    """Write the model ``name`` of the first intact one of some checkpoints to the file ``path``.

    The library safetensors writes only models that are in memory as a whole.

    Raises:
        UsageError: other users may have written the checkpoint, or it has no such model, or the format has no such
            dtype.
        ModelError: no checkpoint is intact, or the file cannot be written.
    """
    stored, path = _stored(_first_intact(checkpoints), name), path.absolute()
    new = path.with_name(f".{path.name}.new")
    try:
        with io.BufferedWriter(open_new(new)) as file:
            file.write(_header(stored.entries))
            for key in stored.entries:
                file.write(_bytes(stored.read(key)))
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
        self._checkpoint = checkpoint
        self._reader = FileSystemReader(checkpoint)
        with _reading(checkpoint):
            self._metadata = self._reader.read_metadata()
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
        self._keys: dict[str, str] = {}
        """The key of each tensor in the checkpoint, by its name in the model."""
        found: dict[str, TensorStorageMetadata] = {}
        parts: set[str] = set()
        for key, entry in self._metadata.state_dict_metadata.items():
            if (match := PART_KEY.fullmatch(key)) and isinstance(entry, TensorStorageMetadata):
                parts.add(match["part"])
                # Several stages of a pipeline may have the same tensor.
                if match["part"] == name and (tensor := match["tensor"]) not in found:
                    found[tensor], self._keys[tensor] = entry, key
        self.parts = sorted(parts)
        """The names of all parts of the state that have tensors."""
        # The widest first, so that the data of each tensor begins at a multiple of its item size.
        self.entries = dict(sorted(found.items(), key=lambda item: -item[1].properties.dtype.itemsize))
        """The shape and the dtype of each tensor, by its name in the model."""

    def read(self, name: str) -> torch.Tensor:
        """Return a whole tensor."""
        entry = self.entries[name]
        found = torch.empty(entry.size, dtype=entry.properties.dtype)
        planner = DefaultLoadPlanner()
        planner.set_up_planner({self._keys[name]: found}, self._metadata, is_coordinator=True)
        with _reading(self._checkpoint):
            self._reader.read_data(planner.create_local_plan(), planner).wait()
        return found


@contextmanager
def _reading(checkpoint: Path) -> Iterator[None]:
    """Raise ModelError if a checkpoint cannot be read, which its run may delete meanwhile."""
    try:
        yield
    except OSError as exc:
        raise ModelError(
            f"the checkpoint {checkpoint} can no longer be read: {exc.strerror or exc}; if its run has deleted it "
            "meanwhile, call this again for a newer one."
        ) from exc


def _first_intact(checkpoints: Sequence[Path]) -> Path:
    """Return the first intact checkpoint. Warn about each damaged one before it."""
    for number, checkpoint in enumerate(checkpoints, 1):
        try:
            # Checked before reading, because the index of the tensors is a pickle.
            check_trusted(checkpoint)
            verified(checkpoint)
        except UntrustedError as exc:
            raise UsageError(str(exc)) from exc
        except (DamagedError, OSError) as exc:
            damage = f"the checkpoint {checkpoint} is damaged: {exc}"
            if number == len(checkpoints):
                raise ModelError(f"{damage}; choose another one with step=..., from run.checkpoints.") from exc
            warnings.warn(f"{damage}. The model of the checkpoint before it is written.", stacklevel=4)
        else:
            break
    return checkpoint


def _stored(checkpoint: Path, name: str) -> StoredModel:
    found = StoredModel(checkpoint, name) if (checkpoint / METADATA).exists() else None
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
