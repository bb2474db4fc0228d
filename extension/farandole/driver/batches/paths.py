"""Finds the files at the path or URL that a user gives `Cluster.map_batches` as its source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from farandole.batches.columns import merged_columns
from farandole.batches.sources import Files, Group, TableFiles, groups_of
from farandole.batches.storage import READERS, Storage
from farandole.datasets.contents import folder_columns, with_folders
from farandole.datasets.places import absolute, cause, cause_with_file, is_url
from farandole.datasets.sources import FORMATS, Source, table_of
from farandole.exceptions import UsageError

Found: TypeAlias = tuple[Files | TableFiles, dict[str, Any]]
"""A source, and what distinguishes it from others."""


def found_at(path: str) -> Found:
    """Return the files or the tables at a path or a URL.

    Raises UsageError if there are none, or if they cannot be read together.
    """
    storage = Storage(absolute(path))
    try:
        kind, files = storage.listed()
    except (OSError, UnicodeError) as exc:
        hint = "Check the URL and your credentials" if is_url(path) else "Check the path, or remove the file"
        raise UsageError(f"the source {storage.name!r} cannot be read: {cause_with_file(exc)}. {hint}") from exc
    if kind == fs.FileType.NotFound:
        relative = "" if is_url(path) else f", which is relative to {Path.cwd()}"
        raise UsageError(f"there is no file or folder {storage.name}; check the path{relative}")
    table = table_of(storage.name, storage.filesystem, storage.path, files)
    if table is not None:
        return _tables(storage, table)
    if kind == fs.FileType.Directory:
        source = Files(storage=storage, paths=[storage.below(file.path) for file in files])
        return source, _identity("files", storage, files, rows=len(files))
    raise UsageError(
        f"{storage.name} is no folder and no table ({', '.join(FORMATS)}); to compute single files, give a folder with "
        "them"
    )


def _tables(storage: Storage, table: Source) -> Found:
    with ThreadPoolExecutor(READERS) as readers:
        opened = list(readers.map(partial(_opened, storage), table.files))
    folders = _folders(table)
    groups = [replace(group, folders=own) for (_, found), own in zip(opened, folders, strict=True) for group in found]
    schemas = [with_folders(schema, own) for (schema, _), own in zip(opened, folders, strict=True)]
    source = TableFiles(storage, groups, _common(schemas, [storage.below(file.path) for file in table.files]))
    return source, _identity("tables", storage, table.files, rows=len(source))


def _opened(storage: Storage, file: fs.FileInfo) -> tuple[pa.Schema, list[Group]]:
    name = storage.below(file.path)
    try:
        return groups_of(storage, name)
    except (OSError, pa.ArrowException) as exc:
        raise UsageError(
            f"{name or storage.name} is not a Parquet or Arrow file that can be read: {cause_with_file(exc)}"
        ) from exc


def _folders(table: Source) -> list[dict[str, pa.Scalar]]:
    try:
        return folder_columns(table)
    except (OSError, pa.ArrowException) as exc:
        raise UsageError(
            f"the names of the folders in {table.name} cannot be read as columns: {cause(exc)}. Rename the folders, or "
            "the columns of the files"
        ) from exc


def _common(schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Schema:
    """Return the schema of all files. A column without any value in a file has the type null there, which fits all."""
    first = known = _types(schemas[0])
    for schema, name in zip(schemas, names, strict=True):
        own = _types(schema)
        merged = merged_columns(known, own)
        if merged is None:
            raise UsageError(
                f"{name} has the columns {_columns(own)}, and {names[0]} has {_columns(first)}; all files of a source "
                "must have the same columns and types"
            )
        known = merged
    return pa.schema(known)


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}


def _columns(types: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in types.items())


def _identity(kind: str, storage: Storage, files: Sequence[fs.FileInfo], *, rows: int) -> dict[str, Any]:
    # Not all stores tell when a file was changed.
    about = json.dumps([[storage.below(file.path), file.size, file.mtime_ns or 0] for file in files])
    return {
        "kind": kind,
        "path": storage.name,
        "rows": rows,
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "names": hashlib.sha256(about.encode()).hexdigest(),
    }
