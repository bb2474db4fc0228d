"""Each row of a table is used once in an epoch, with 4, 3 and again 4 ranks, on both backends."""

import json
import os
from collections import Counter

import dask.dataframe as dd
import farandole as fd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from farandole import Cluster, Elastic
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import elastic
from tests.contract.worlds import run, world

ROWS = 208
EPOCHS = 2


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder of Parquet files, which the ranks copy into an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "table").mkdir()
    for part, numbers in enumerate(np.split(np.arange(ROWS), [50, 60, 161])):
        x = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 4), pa.float32()), 4)
        path = tmp_path / "table" / f"part-{part}.parquet"
        pq.write_table(pa.table({"id": numbers, "x": x}), path, row_group_size=20)
    return tmp_path / "table"


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        ("table", "horovod"),
        pytest.param("stream", "torch", marks=pytest.mark.release),
        pytest.param("table", "torch", marks=pytest.mark.release),
        pytest.param("stream", "horovod", marks=pytest.mark.release),
    ],
)
def test_runs_continue_within_an_epoch_with_another_number_of_ranks(table, tmp_path, kind, backend):
    seen = Counter()
    resume = None
    for size, until in ((4, 10), (3, 19), (4, 1000)):  # 26 steps are an epoch
        out = tmp_path / f"until-{until}"
        out.mkdir()
        task = {"table": str(table), "kind": kind, "folder": str(out), "out": str(out), "until": until}
        with world(backend, size) as environments:
            run(environments, "tests.contract.data_on_ranks", json.dumps(task | {"resume": resume}))
        ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
        assert len({len(steps) for steps in ranks}) == 1
        seen.update((epoch, number) for steps in ranks for epoch, numbers in steps for number in numbers)
        resume = str(out)
    assert seen == Counter((epoch, number) for epoch in range(EPOCHS) for number in range(ROWS))
    assert len(list((tmp_path / "cache" / "farandole" / "datasets").glob("*.arrow"))) == 1


def test_ranks_write_a_frame_and_read_it(tmp_path):
    with Cluster.start(local=True, ranks=2, backend="none", store=RunStore(tmp_path / "runs")) as cluster:
        cluster.dask()
        numbers = dd.from_pandas(pd.DataFrame({"id": np.arange(ROWS)}), npartitions=8)
        frame = numbers.map_partitions(lambda part: part.assign(pid=os.getpid()), meta={"id": int, "pid": int})
        data = fd.dataset(frame, folder=tmp_path / "out")
        cluster.push({"data": data})
        cluster.run("import os\npid, ids = os.getpid(), [int(item['id']) for item in data]")
        found = cluster.pull("pid", "ids")
    assert {one["pid"] for one in found.values()} == {int(item["pid"]) for item in data}
    assert [one["ids"] for one in found.values()] == [list(range(ROWS))] * 2


@pytest.mark.release
@pytest.mark.parametrize("backend", ["torch", "horovod"])
def test_a_rank_is_lost_and_replaced_within_an_epoch(table, tmp_path, backend):
    data = f"fd.dataset({str(table)!r}, transform=lambda row: (row['id'], row['x']))"
    fault = "kill(2, 10); time.sleep(0 if fd.size() == 4 else 0.2)"
    cell = elastic(tmp_path, epochs=6, data=data, fault=fault)
    store = RunStore(tmp_path / "runs")
    with Cluster.start(local=True, ranks=4, backend=backend, store=store) as cluster:
        run = cluster.train(cell, elastic=Elastic())
    assert run.status == Status.FINISHED
    assert any("continuing with 3 ranks" in notice for notice in run.notices)
    assert any("continuing with 4 ranks" in notice for notice in run.notices)
    for result in run.results.values():
        assert Counter(result["seen"]) == dict.fromkeys(range(ROWS), 6)
