"""Tables and images in an object store, which is a real server of the protocol of S3, are read by driver and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import farandole as fd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from farandole import Cluster
from farandole.exceptions import UsageError
from farandole.runs.store import RunStore
from moto.server import ThreadedMotoServer
from pyarrow import fs
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 300
KEYS = {"AWS_ACCESS_KEY_ID": "ada", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fs.FileSystem]:
    """A bucket ``clicks``. The environment of this process has its address and the keys, as that of a user's server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        store = fs.S3FileSystem(
            scheme="http", endpoint_override=f"{host}:{port}", region="eu-west-1", allow_bucket_creation=True
        )
        store.create_dir("clicks")
        yield store
    server.stop()


@pytest.fixture(scope="module")
def cluster(bucket: fs.FileSystem, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="none", store=store) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def table(bucket: fs.FileSystem) -> str:
    """The URL of a table of several files."""
    for part in range(3):
        numbers = range(part * ROWS // 3, (part + 1) * ROWS // 3)
        rows = pa.table({"id": numbers, "text": [f"row {number}" for number in numbers]})
        pq.write_table(rows, f"clicks/2026/part={part}/0.parquet", filesystem=bucket, row_group_size=40)
    return "s3://clicks/2026"


def write(bucket: fs.FileSystem, path: str, content: bytes) -> None:
    with bucket.open_output_stream(path) as file:
        file.write(content)


def test_a_table_is_a_data_set_of_the_driver_and_of_the_ranks(cluster: Cluster, table: str) -> None:
    data = fd.dataset(table, ["id", "part"])
    assert [int(item["id"]) for item in data] == list(range(ROWS))
    assert int(data[ROWS - 1]["part"]) == 2
    loader = DataLoader(data, batch_size=50, num_workers=2)
    assert [int(number) for batch in loader for number in batch["id"]] == list(range(ROWS))
    cluster.push({"data": data})
    cluster.run("ids = [int(item['id']) for item in data]")
    assert [found["ids"] for found in cluster.pull("ids").values()] == [list(range(ROWS))] * 2


def test_dask_reads_a_table_on_the_ranks(cluster: Cluster, table: str) -> None:
    cluster.dask()
    frame = dd.read_parquet(table, filesystem="arrow")
    assert frame["id"].sum().compute() == sum(range(ROWS))


def test_batches_of_a_table_are_computed(cluster: Cluster, table: str, tmp_path: Path) -> None:
    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {"text": batch["text"], "double": batch["id"] * 2}

    output = cluster.map_batches(double, table, tmp_path, batch_size=7)
    assert output.table().to_pydict() == {
        "text": [f"row {number}" for number in range(ROWS)],
        "double": [2 * number for number in range(ROWS)],
    }


def test_a_folder_is_the_same_table_for_batches_and_for_a_data_set(
    cluster: Cluster, bucket: fs.FileSystem, tmp_path: Path
) -> None:
    for part in range(11):
        with bucket.open_output_stream(f"clicks/parts/year=2026/part.{part}.parquet") as file:
            pq.write_table(pa.table({"id": [2 * part, 2 * part + 1]}), file)
    write(bucket, "clicks/parts/README.md", b"no table")

    def same(batch: dict[str, Any]) -> dict[str, Any]:
        return batch

    found = cluster.map_batches(same, "s3://clicks/parts", tmp_path, batch_size=5).table()
    data = fd.dataset("s3://clicks/parts")
    assert found.to_pylist() == [{name: int(value) for name, value in item.items()} for item in data]
    assert found.to_pydict() == {"id": list(range(22)), "year": [2026] * 22}
    assert str(found.schema.field("year").type) == "int32"
    assert str(data[0]["year"].dtype) == "torch.int32"


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
@pytest.mark.parametrize("as_stream", [True, False])
def test_arrow_files_and_streams_are_computed(
    cluster: Cluster, bucket: fs.FileSystem, tmp_path: Path, compression: str, as_stream: bool
) -> None:
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "uncompressed" else compression)
    folder = f"clicks/{compression}-{'stream' if as_stream else 'file'}"
    for part in range(3):
        rows = pa.table({"id": range(part * 10, part * 10 + 10), "text": ["x"] * 10})
        new = pa.ipc.new_stream if as_stream else pa.ipc.new_file
        with (
            bucket.open_output_stream(f"{folder}/{part}.arrow") as file,
            new(file, rows.schema, options=options) as out,
        ):
            out.write_table(rows, max_chunksize=4)

    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {"double": batch["id"] * 2, "text": batch["text"]}

    output = cluster.map_batches(double, f"s3://{folder}", tmp_path, batch_size=7)
    assert output.table().to_pydict() == {"double": [2 * number for number in range(30)], "text": ["x"] * 30}


def test_images_are_computed_and_a_change_is_seen(cluster: Cluster, bucket: fs.FileSystem, tmp_path: Path) -> None:
    def size(batch: dict[str, Any]) -> dict[str, Any]:
        return {"path": batch["path"], "size": [len(data) for data in batch["bytes"]]}

    def call() -> Any:
        return cluster.map_batches(size, "s3://clicks/raw images", tmp_path, batch_size=5)

    for number in range(20):
        write(bucket, f"clicks/raw images/{number // 10}/{number:02} é.png", b"x" * number)
    rows = call().table().to_pydict()
    assert rows["path"][12] == "1/12 é.png"
    assert rows["size"] == list(range(20))
    assert call().run is None
    write(bucket, "clicks/raw images/0/00 é.png", b"another")
    with pytest.raises(UsageError, match=r"another job: the source has changed \(bytes: 190 before, 197 now\)"):
        call()


@pytest.mark.parametrize("url", ["s3://clicks/nope", "s3://nope/2026"])
def test_a_url_where_nothing_is(cluster: Cluster, url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no file or folder {url}"):
        fd.dataset(url)
    with pytest.raises(UsageError, match=f"there is no file or folder {url}; check the path"):
        cluster.map_batches(len, url, tmp_path / "out")
    assert not (tmp_path / "out").exists()
