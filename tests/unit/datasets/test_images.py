"""Columns of images: bytes, names of files and both, in the processes of a loader."""

import io

import farandole as fd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from farandole.exceptions import UsageError
from PIL import Image
from torch.utils.data import DataLoader

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), np.uint8)


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def as_bytes(folder):
    return pa.array([png(pixels) for pixels in PIXELS])


def as_names(folder):
    (folder / "pictures").mkdir()
    for number, pixels in enumerate(PIXELS):
        (folder / "pictures" / f"{number}.png").write_bytes(png(pixels))
    return pa.array([f"pictures/{number}.png" for number in range(len(PIXELS))])


def as_both(folder):
    values = [{"bytes": png(pixels), "path": None} for pixels in PIXELS[:3]]
    names = as_names(folder).to_pylist()[3:]
    return pa.array([*values, *({"bytes": None, "path": str(folder / name)} for name in names)])


@pytest.mark.parametrize("make", [as_bytes, as_names, as_both])
@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_decoded_where_batches_are_loaded(tmp_path, make, workers):
    pq.write_table(pa.table({"image": make(tmp_path), "label": range(6)}), tmp_path / "x.parquet")
    data = fd.dataset(tmp_path / "x.parquet", images="image")
    for batch in DataLoader(data, batch_size=3, num_workers=workers):
        assert batch["image"].dtype == torch.uint8
        wanted = PIXELS[batch["label"].numpy()].transpose(0, 3, 1, 2)
        assert np.array_equal(batch["image"].numpy(), wanted)


def test_images_in_grey_have_three_colours_and_transforms_get_tensors(tmp_path):
    pq.write_table(pa.table({"image": [png(PIXELS[0, :, :, 0])]}), tmp_path / "x.parquet")
    data = fd.dataset(tmp_path / "x.parquet", images=["image"], transform=lambda row: row["image"].float().mean((1, 2)))
    assert data[0].tolist() == pytest.approx([PIXELS[0, :, :, 0].mean()] * 3, rel=1e-5)


def test_images_of_different_sizes_need_a_transform(tmp_path):
    pq.write_table(pa.table({"image": [png(PIXELS[0]), png(PIXELS[0, 1:])]}), tmp_path / "x.parquet")
    data = fd.dataset(tmp_path / "x.parquet", images=["image"])
    with pytest.raises(
        UsageError, match=r"'image' have different sizes: \[3, 4, 4\] and \[3, 5, 4\]\. Give a transform"
    ):
        next(iter(DataLoader(data, batch_size=2)))
    assert [item["image"].shape[1] for item in data] == [5, 4]


@pytest.mark.parametrize(
    ("value", "reason", "workers"),
    [(b"no image", "cannot identify", 0), (None, "the value is missing", 1), (png(PIXELS[0])[:70], "", 0)],
)
def test_an_image_that_cannot_be_decoded_is_named(tmp_path, value, reason, workers):
    pq.write_table(pa.table({"image": [png(PIXELS[0]), value]}), tmp_path / "x.parquet")
    data = fd.dataset(tmp_path / "x.parquet", images=["image"])
    with pytest.raises(UsageError, match=f"the image of row 1 in the column 'image' cannot be decoded: {reason}"):
        list(DataLoader(data, batch_size=2, num_workers=workers))


def test_columns_without_images(tmp_path):
    pq.write_table(pa.table({"label": [1]}), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="'label' is of the type int64. A column of `images` has the bytes"):
        fd.dataset(tmp_path / "x.parquet", images=["label"])
    with pytest.raises(UsageError, match="has no column 'image'"):
        fd.dataset(tmp_path / "x.parquet", images=["image"])
    with pytest.raises(UsageError, match="`images` names 'image', which is not among the `columns`"):
        fd.dataset(tmp_path / "x.parquet", ["label"], images=["image"])
