"""Dask data frames are written once, as a whole, and into folders without other content."""

import resource

import dask
import dask.dataframe as dd
import farandole as fd
import numpy as np
import pandas as pd
import pytest
from farandole.datasets import frames
from farandole.exceptions import UsageError


@pytest.fixture(autouse=True)
def threads():
    """Compute in this process."""
    with dask.config.set(scheduler="threads"):
        yield


def frame(rows=100, parts=4):
    return dd.from_pandas(pd.DataFrame({"id": np.arange(rows), "x": np.arange(rows) / 2}), npartitions=parts)


def refused(says, *arguments, **options):
    with pytest.raises(UsageError, match=says):
        fd.dataset(*arguments, **options)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_each_partition_is_a_part_in_order(tmp_path):
    data = fd.dataset(frame(), folder=tmp_path / "out")
    assert [int(item["id"]) for item in data] == list(range(100))
    assert left_in(tmp_path / "out") == ["_frame.json", *(f"part-{part:05}.arrow" for part in range(4))]
    assert left_in(tmp_path) == ["out"]
    assert data.source == str(tmp_path / "out")


def test_columns_transforms_and_lists(tmp_path):
    made = frame().assign(pair=frame()["id"].map(lambda value: [value, -value], meta=("pair", object)))
    data = fd.dataset(made, ["pair"], folder=tmp_path / "out")
    assert data[7]["pair"].tolist() == [7, -7]
    texts = frame().assign(name=frame()["id"].astype(str))
    rows = fd.dataset(texts, ["name"], folder=tmp_path / "texts", transform=lambda row: row["name"])
    assert list(rows)[:2] == ["0", "1"]


def test_an_equal_frame_is_not_written_again(tmp_path, monkeypatch):
    fd.dataset(frame(), folder=tmp_path / "out")
    monkeypatch.setattr(frames, "_write", None)
    assert len(fd.dataset(frame(), folder=tmp_path / "out")) == 100


def test_without_a_folder_it_is_kept_in_the_scratch_folder(tmp_path):
    data = fd.dataset(frame())
    [name] = left_in(tmp_path / "scratch")
    assert data.source == str(tmp_path / "scratch" / name)
    fd.dataset(frame(50))
    assert len(left_in(tmp_path / "scratch")) == 2


def test_a_folder_with_other_content_is_refused_and_kept(tmp_path):
    fd.dataset(frame(), folder=tmp_path / "out")
    before = left_in(tmp_path / "out")
    refused(
        r"out already exists and does not have the data of this frame; delete it", frame(50), folder=tmp_path / "out"
    )
    assert left_in(tmp_path / "out") == before
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").touch()
    refused("own already exists", frame(), folder=tmp_path / "own")
    assert left_in(tmp_path / "own") == ["thesis.txt"]
    (tmp_path / "out" / "part-00002.arrow").unlink()
    refused(r"part-00002\.arrow is missing in", frame(), folder=tmp_path / "out")


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "out").mkdir()
    assert len(fd.dataset(frame(), folder=tmp_path / "out")) == 100


def test_a_failed_or_killed_computation_leaves_no_folder(tmp_path):
    broken = frame().map_partitions(lambda part: part if part["id"].iloc[0] < 50 else 1 / 0, meta=frame()._meta)
    (tmp_path / ".new-out-01234567").mkdir()  # a process was killed
    (tmp_path / ".new-out-2-01234567").mkdir()  # another one writes another folder
    with pytest.raises(ZeroDivisionError):
        fd.dataset(broken, folder=tmp_path / "out")
    assert left_in(tmp_path) == [".new-out-2-01234567"]


def test_a_full_disk_leaves_no_folder(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        refused(
            r"a rank cannot write partition \d of the data frame to .*: File too large\. Make space there",
            frame(100_000),
            folder=tmp_path / "out",
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert left_in(tmp_path) == []


def test_what_a_frame_lacks(tmp_path):
    refused("the data frame has no column 'y'", frame(), ["y"])
    refused("'name' is of the type .*string, which is no tensor", frame().assign(name="a"), folder=tmp_path / "out")
    refused("the data frame has no rows", frame()[frame()["id"] < 0], folder=tmp_path / "out")
    refused("the data frame has no column 'image'", frame(), images="image")
    assert not (tmp_path / "out").exists()


def test_partitions_without_rows_have_no_part(tmp_path):
    made = frame().assign(pair=frame()["id"].map(lambda value: [value, -value], meta=("pair", object)))
    data = fd.dataset(made[made["id"] >= 60], ["pair"], folder=tmp_path / "out")
    assert len(data) == 40
    assert left_in(tmp_path / "out") == ["_frame.json", "part-00002.arrow", "part-00003.arrow"]


def test_errors_of_the_computation_stay_as_they_are(tmp_path):
    missing = frame().map_partitions(lambda part: pd.read_csv(tmp_path / "nope.csv"), meta=frame()._meta)
    with pytest.raises(FileNotFoundError, match=r"nope\.csv"):
        fd.dataset(missing, folder=tmp_path / "out")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    refused(
        "cannot be written to .*: (File exists|Not a directory).*`folder`", frame(), folder=tmp_path / "file" / "out"
    )


def test_values_of_several_types_are_named(tmp_path):
    mixed = frame().assign(y=frame()["id"].map(lambda value: value if value else "zero", meta=("y", object)))
    refused(
        "partition 0 of the data frame cannot be written: .*column y.* Give each column", mixed, folder=tmp_path / "out"
    )
    parts = frame().assign(y=frame()["id"].map(lambda value: [value] if value < 50 else [0.5], meta=("y", object)))
    refused(r"the files have different columns: 'y' is of the type list<.*double", parts, folder=tmp_path / "parts")


def test_categories_are_texts(tmp_path):
    made = frame().assign(kind=frame()["id"].map(lambda value: "ab"[value % 2], meta=("kind", "str")))
    made = made.assign(kind=made["kind"].astype("category").cat.as_known())
    data = fd.dataset(made, ["kind"], folder=tmp_path / "out", transform=lambda row: row["kind"])
    assert [data[0], data[99]] == ["a", "b"]


def test_other_collections_of_dask_are_refused():
    import dask.array

    refused("the source is of type Array", dask.array.zeros((5, 2)))
    refused("the source is of type Series", frame()["id"])
    refused("DelayedLeaf", dask.delayed(1))


def test_columns_whose_names_are_no_texts(tmp_path):
    numbered = dd.from_pandas(pd.DataFrame({0: [1, 2]}), npartitions=1)
    refused(r"the column 0, whose name is no text; rename it, for example with frame\.rename\(columns=str\)", numbered)
    assert len(fd.dataset(numbered.rename(columns=str), folder=tmp_path / "out")) == 2


def test_a_list_column_without_values_in_a_partition(tmp_path):
    made = frame().assign(pair=frame()["id"].map(lambda value: [value] if value < 50 else None, meta=("pair", object)))
    data = fd.dataset(made, ["pair"], folder=tmp_path / "out", transform=lambda row: row["pair"])
    assert [data[7], data[99]] == [[7], None]


def test_a_frame_with_a_function_of_the_notebook_is_not_written_again_in_a_new_kernel(tmp_path, monkeypatch):
    def made(filename):
        there = {"__name__": "__main__"}
        exec(compile("def double(part): return part.assign(y=part.x * 2)", filename, "exec"), there)
        return fd.dataset(frame().map_partitions(there["double"]), folder=tmp_path / "out")

    made("<one cell>")
    monkeypatch.setattr(frames, "_write", None)
    assert made("<the same cell>")[3]["y"] == 3
