"""``fd.dataset``. Importing this module imports neither pyarrow nor torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError

if TYPE_CHECKING:
    from farandole.datasets.table_dataset import TableDataset


def dataset(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    transform: Callable[[dict[str, Any]], Any] | None = None,
    images: Sequence[str] = (),
    folder: str | Path | None = None,
) -> TableDataset:
    """Return a map-style data set with the rows of a table, for a DataLoader and :func:`farandole.prepare`.

    An item is a dict with a tensor for each column, unless ``transform`` makes something else of it. Rows are read from
    memory maps, so that the table may be larger than memory, and all ranks of a machine share it.

    Args:
        source: the path or URL of a Parquet file, of an Arrow file or of a folder of either; or a Dask data frame,
            which is computed and written once. Parquet and compressed Arrow files are first copied into a cache.
        columns (list of str, optional): the columns to read. The default is all of them.
        transform (callable, optional): a function that gets the dict of a row, and returns the item. In the dict,
            columns that cannot be tensors have Python values: text, bytes, times, lists of different lengths, and
            columns with missing values, which are None.
        images (list of str): columns with the bytes of image files, or with names of such files relative to the folder
            of the table. Each image becomes a tensor of the type uint8 and the shape [3, height, width].
        folder (str, optional): for a Dask data frame, the folder in which the ranks write it. The default is a folder
            in ``~/farandole/datasets`` (``$FARANDOLE_DATASETS``).

    Returns:
        TableDataset: a data set with ``len``, an index and ``columns``. Its pickle has the path, not the data.

    Raises:
        UsageError: there is no such file, the table has no rows, a column is missing or cannot be a tensor, the files
            have different columns, ``folder`` has other content, or a disk is full.
    """
    try:
        from farandole.datasets import frames
        from farandole.datasets.table_dataset import TableDataset
    except ModuleNotFoundError as exc:
        raise UsageError(f"fd.dataset: {exc.name} is not installed; run `pip install 'farandole[data]'`.") from exc
    wanted, pictures = _names(columns), _names(images)
    if wanted and (other := [name for name in pictures if name not in wanted]):
        raise UsageError(f"fd.dataset: `images` names {other[0]!r}, which is not among the `columns`; add it there.")
    if frames.is_frame(source):
        target = Path(folder) if folder else None
        source = frames.stored(source, wanted, target, strict=transform is None, images=pictures)
    elif folder is not None:
        raise UsageError("fd.dataset: only a Dask data frame is written to a folder; leave out `folder` for files.")
    elif not isinstance(source, str | os.PathLike):
        raise UsageError(_other(source))
    return TableDataset(os.fspath(source), wanted, transform=transform, images=pictures)


def _names(given: Sequence[str] | None) -> list[str]:
    names = [given] if isinstance(given, str) else list(given or ())
    if other := [name for name in names if not isinstance(name, str)]:
        raise UsageError(f"fd.dataset: {other[0]!r} is no name of a column; give names, e.g. columns=['x', 'y'].")
    return names


def _other(source: Any) -> str:
    if isinstance(source, Mapping) or hasattr(source, "to_parquet"):
        return (
            f"fd.dataset: the source is a {type(source).__name__} in memory; write it to a file, e.g. "
            "frame.to_parquet('table.parquet'), and give the name of the file."
        )
    return (
        f"fd.dataset: the source is of type {type(source).__name__}; give the path or URL of a Parquet or Arrow file, "
        "of a folder of them, or a Dask data frame."
    )
