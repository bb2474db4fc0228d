"""Tests for copies of folders between a driver and a real rank."""

import os

import pytest
from farandole import Cluster
from farandole.exceptions import TransferError
from farandole.runs.store import RunStore

MIB = 2**20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="none", store=store, progress=lambda _: None) as cluster:
        yield cluster


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    for number in range(300):
        (folder / "images" / f"{number}.png").write_bytes(os.urandom(number))
    (folder / "large.bin").write_bytes(os.urandom(10 * MIB))
    (folder / "empty").touch()
    return folder


def texts(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_goes_to_the_workers_and_back(cluster, data, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back"
    copied = cluster.put(data, str(there))
    assert (copied.files, copied.sent_files, copied.size) == (302, 302, copied.sent)
    assert texts(there) == texts(data)
    assert cluster.put(data, str(there)).sent_files == 0
    cluster.run(f"from pathlib import Path\nPath({str(there)!r}, 'result.txt').write_text('0.9')", ranks=[0])
    cluster.get(str(there), back)
    assert texts(back) == {**texts(data), "result.txt": b"0.9"}


def test_an_error_names_the_folder_and_the_cluster_still_works(cluster, data, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TransferError, match="'.*file' on the workers is not a folder"):
        cluster.put(data, str(tmp_path / "file"))
    with pytest.raises(TransferError, match="there is no folder '.*none' on the workers"):
        cluster.get(str(tmp_path / "none"), tmp_path / "back")
    [block] = cluster.run("print('fine')")
    assert block.text == "fine\n"
