"""Finds the files at the path or URL that a user gives `Cluster.map_batches` as its source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from farandole.batches.sources import ARROW, PARQUET, Files, TableFiles, groups_of
from farandole.batches.storage import Entry, Storage
from farandole.datasets.places import absolute, cause, is_url
from farandole.exceptions import UsageError
from farandole.reading import reason

Found: TypeAlias = tuple[Files | TableFiles, dict[str, Any]]
"""A source, and what distinguishes it from others."""


def found_at(path: str) -> Found:
    """Return the files or the tables at a path or a URL.

    Raises UsageError if there are none, or if they cannot be read together.
    """
    storage = Storage(absolute(path))
    try:
        kind = storage.kind
        entries = storage.entries() if kind == fs.FileType.Directory else [storage.entry()]
    except (OSError, UnicodeError) as exc:
        hint = "Check the URL and your credentials" if is_url(path) else "Check the path, or remove the file"
        raise UsageError(f"the source {storage.name!r} cannot be read: {_cause(exc)}. {hint}") from exc
    if kind == fs.FileType.Directory:
        return _in_folder(storage, entries)
    if kind == fs.FileType.NotFound:
        relative = "" if is_url(path) else f", which is relative to {Path.cwd()}"
        raise UsageError(f"there is no file or folder {storage.name}; check the path{relative}")
    if _suffix(storage.path) not in {*PARQUET, *ARROW}:
        raise UsageError(
            f"{storage.name} is no folder and no table ({', '.join((*PARQUET, *ARROW))}); to compute single files, "
            "give a folder with them"
        )
    return _tables(storage, entries)


def _cause(exc: Exception) -> str:
    return reason(exc) if isinstance(exc, OSError) and exc.filename is not None else cause(exc)


def _in_folder(storage: Storage, entries: Sequence[Entry]) -> Found:
    if other := [entry.path for entry in entries if not _is_text(entry.path)]:
        raise UsageError(f"the name of the file {other[0]!r} in {storage.name} is not UTF-8; rename the file")
    suffixes = {_suffix(entry.path) for entry in entries}
    if not suffixes & {*PARQUET, *ARROW}:
        source = Files(storage=storage, paths=[entry.path for entry in entries])
        return source, _identity("files", storage, entries, rows=len(entries))
    if not (suffixes <= {*PARQUET} or suffixes <= {*ARROW}):
        raise UsageError(
            f"{storage.name} has tables and other files ({', '.join(sorted(suffixes))}); give a folder with files of "
            "one kind"
        )
    return _tables(storage, entries)


def _suffix(path: str) -> str:
    return PurePath(path).suffix.lower()


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tables(storage: Storage, entries: Sequence[Entry]) -> Found:
    groups, schemas = [], []
    for entry in entries:
        try:
            schema, own = groups_of(storage, entry.path)
        except (OSError, pa.ArrowException) as exc:
            name = entry.path or storage.name
            raise UsageError(f"{name} is not a Parquet or Arrow file that can be read: {_cause(exc)}") from exc
        schemas.append(schema)
        groups += own
    source = TableFiles(storage, groups, _common(schemas, entries))
    return source, _identity("tables", storage, entries, rows=len(source))


def _common(schemas: Sequence[pa.Schema], entries: Sequence[Entry]) -> pa.Schema:
    """Return the schema of all files. A column without any value in a file has the type null there, which fits all."""
    first = schemas[0]
    kinds = {field.name: field.type for field in first}
    for schema, entry in zip(schemas, entries, strict=True):
        if sorted(schema.names) != sorted(first.names) or any(not _fits(kinds[one.name], one.type) for one in schema):
            raise UsageError(
                f"{entry.path} has the columns {_columns(schema)}, and {entries[0].path} has {_columns(first)}; all "
                "files of a source must have the same columns and types"
            )
        kinds |= {field.name: field.type for field in schema if pa.types.is_null(kinds[field.name])}
    return pa.schema(kinds)


def _fits(kind: pa.DataType, other: pa.DataType) -> bool:
    return bool(kind == other or pa.types.is_null(kind) or pa.types.is_null(other))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name}: {one.type}" for one in schema)


def _identity(kind: str, storage: Storage, entries: Sequence[Entry], *, rows: int) -> dict[str, Any]:
    about = json.dumps([[entry.path, entry.size, entry.changed] for entry in entries])
    return {
        "kind": kind,
        "path": storage.name,
        "rows": rows,
        "files": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "names": hashlib.sha256(about.encode()).hexdigest(),
    }
