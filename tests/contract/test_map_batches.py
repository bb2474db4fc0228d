"""`Cluster.map_batches` on real ranks: lost ranks, interrupts and bad input leave whole parts, and a call continues."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from farandole import Cluster
from farandole.driver.batches.manifest import MANIFEST
from farandole.exceptions import RankDiedError, RankError, UsageError
from farandole.protocol import Status
from farandole.runs.store import RunStore
from farandole.runs.view import view_of

from hub.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 22
KILLS = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="none", store=store, progress=ignore) as cluster:
        yield cluster


def ignore(_text: str) -> None:
    return None


def records(count: int) -> list[dict[str, Any]]:
    return [{"number": number, "text": f"row {number}"} for number in range(count)]


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of each file of an output folder."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


def squares() -> Any:
    """Return a stage. Functions in functions are sent to the ranks with their code."""

    def square(batch: dict[str, Any]) -> dict[str, Any]:
        return {"number": batch["number"], "square": batch["number"] ** 2}

    return square


def slow_stage(pids: Path, seconds: float) -> Any:
    """Return a stage that takes some time for each batch, and writes which processes computed how many batches."""

    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        with (pids / str(os.getpid())).open("a") as file:
            file.write(".")
        time.sleep(seconds)
        return {"number": batch["number"] * 2}

    return slow


DRIVER = """
import sys
from pathlib import Path
from farandole import Cluster
from farandole.runs.store import RunStore
from tests.contract.test_map_batches import ignore, records, slow_stage
folder = Path(sys.argv[1])
with Cluster.start(local=True, ranks=2, backend="none", store=RunStore(folder / "runs"), progress=ignore) as cluster:
    cluster.map_batches(slow_stage(folder / "pids", 0.02), records(2000), folder / "out", batch_size=10, part_rows=100)
"""
"""The code of a driver in a process of its own."""


def listed(out: Path) -> list[str]:
    """Return the names of the parts in the manifest of an output folder."""
    file = out / MANIFEST
    return list(json.loads(file.read_text())["parts"]) if file.exists() else []


def alive(pids: Path) -> list[int]:
    """Return the processes of ranks that have computed a batch."""
    return [pid for pid in sorted(int(path.name) for path in pids.iterdir()) if psutil.pid_exists(pid)]


def test_the_results_are_in_the_order_of_the_source(cluster: Cluster, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 100, "part_rows": 1000, "name": "squares"}
    output = cluster.map_batches([squares()], records(2050), tmp_path / "out", **options)
    table = output.table()
    assert table.to_pydict() == {"number": list(range(2050)), "square": [number**2 for number in range(2050)]}
    assert [part.name for part in output.parts] == [
        "part-00000000-00001000.parquet",
        "part-00001000-00002000.parquet",
        "part-00002000-00002050.parquet",
    ]
    assert (output.rows, output.skipped, output.dataset().count_rows()) == (2050, (), 2050)
    run = cluster.store.load("squares")
    assert output.run is not None
    assert (run.id, run.status, run.result["rows"]) == (output.run.id, Status.FINISHED, 2050)
    assert "def square(batch" in run.code
    assert run.dataframe()["rows_per_second"].max() > 0
    view = view_of(output.run, time.time())
    assert view["ended"]
    assert [rank["state"] for rank in view["ranks"]] == ["done", "done"]


def test_a_second_call_computes_only_what_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    def call() -> Any:
        return cluster.map_batches([squares()], records(3000), tmp_path, batch_size=100)

    first = call()
    before = contents(tmp_path)
    assert call().run is None
    first.parts[0].unlink()
    first.parts[2].write_bytes(b"damaged")
    kept = first.parts[1].stat().st_mtime_ns
    again = call()
    assert again.run is not None
    assert contents(tmp_path) == before
    assert first.parts[1].stat().st_mtime_ns == kept


def test_a_class_is_made_once_a_rank(cluster: Cluster, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()

    class Count:
        def __init__(self) -> None:
            (made / f"{os.getpid()}-{id(self)}").touch()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {"pid": np.full(len(batch["number"]), os.getpid())}

    output = cluster.map_batches(Count, records(2000), tmp_path / "out", batch_size=10, part_rows=100)
    pids = set(output.table()["pid"].to_pylist())
    assert sorted(pids) == sorted(int(path.name.split("-")[0]) for path in made.iterdir())


def killer_stage(markers: Path, victims: set[int]) -> Any:
    """Return a stage that kills its own process, once for each of some rows."""

    def square(batch: dict[str, Any]) -> dict[str, Any]:
        with (markers / f"batches-{os.getpid()}").open("a") as file:
            file.write(".")
        for row in victims.intersection(batch["number"].tolist()):
            marker = markers / str(row)
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return {"number": batch["number"], "square": batch["number"] ** 2}

    return square


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [5, pytest.param(KILLS, marks=pytest.mark.release)])
def test_kills_change_no_byte_and_cost_one_part_each(cluster: Cluster, tmp_path: Path, kills: int) -> None:
    rows, batch_size, part_rows = 4000, 20, 100
    victims = set(random.Random(SEED).sample(range(rows), kills))
    markers = tmp_path / "markers"
    markers.mkdir()
    stage = killer_stage(markers, victims)
    disturbed = cluster.map_batches(stage, records(rows), tmp_path / "a", batch_size=batch_size, part_rows=part_rows)
    assert {int(path.name) for path in markers.iterdir() if path.name.isdecimal()} == victims
    computed = sum(path.stat().st_size for path in markers.glob("batches-*"))
    assert rows / batch_size < computed <= rows / batch_size + kills * part_rows / batch_size
    cluster.map_batches(stage, records(rows), tmp_path / "b", batch_size=batch_size, part_rows=part_rows)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not list((tmp_path / "a").glob(".part*"))
    assert disturbed.run is not None
    assert len([text for text in disturbed.run.info.warnings if text.startswith("rank ")]) == kills
    assert cluster.run("print('still here')")


def test_the_loss_of_all_ranks_at_once(cluster: Cluster, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def kill() -> None:
        wait_until(lambda: len(alive(pids)) == 2, 30)
        for pid in alive(pids):
            os.kill(pid, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    output = cluster.map_batches(slow_stage(pids, 0.02), records(2000), tmp_path / "out", batch_size=10, part_rows=100)
    killing.join()
    assert output.table()["number"].to_pylist() == [2 * number for number in range(2000)]
    assert len(list(pids.iterdir())) >= 3


def test_a_part_that_ends_its_rank_each_time_is_named(cluster: Cluster, tmp_path: Path) -> None:
    def end(batch: dict[str, Any]) -> dict[str, Any]:
        if 150 in batch["number"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    with pytest.raises(RankDiedError, match="part-00000100-00000200.parquet has lost its rank 4 times"):
        cluster.map_batches(end, records(400), tmp_path, batch_size=10, part_rows=100)
    assert not (tmp_path / "part-00000100-00000200.parquet").exists()


@pytest.mark.parametrize("how", ["keyboard", "interrupt"])
def test_an_interrupted_job_continues(cluster: Cluster, tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    out = tmp_path / "out"

    def call() -> Any:
        return cluster.map_batches(slow_stage(pids, 0.02), records(2000), out, batch_size=10, part_rows=100, name=how)

    def stop() -> None:
        wait_until(lambda: len(list(out.glob("part-*"))) >= 2, 30)
        if how == "keyboard":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            cluster.interrupt()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(KeyboardInterrupt if how == "keyboard" else RankError):
        call()
    stopping.join()
    assert cluster.store.find(how).status is Status.INTERRUPTED
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 2 <= len(kept) < 20
    output = call()
    assert output.table()["number"].to_pylist() == [2 * number for number in range(2000)]
    assert {name: time for name, time in kept.items() if (out / name).stat().st_mtime_ns != time} == {}


def test_the_ranks_stop_soon_after_an_interrupt(cluster: Cluster, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def computed() -> int:
        return sum(path.stat().st_size for path in pids.iterdir())

    def stop() -> None:
        wait_until(computed, 30)
        cluster.interrupt()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(RankError, match="the job was stopped. Its complete parts are kept"):
        cluster.map_batches(slow_stage(pids, 0.1), records(2000), tmp_path / "out", batch_size=10)
    stopping.join()
    time.sleep(1)
    before = computed()
    time.sleep(1)
    assert computed() == before
    assert len(list((tmp_path / "out").iterdir())) == 2  # the manifest and the lock


def test_a_corrected_stage_takes_a_folder_without_parts(cluster: Cluster, tmp_path: Path) -> None:
    def broken(batch: dict[str, Any]) -> dict[str, Any]:
        return {"number": batch["numbers"]}

    with pytest.raises(RankError, match=r"stage 1 \(broken\) failed on row (0|64) .*KeyError"):
        cluster.map_batches(broken, records(100), tmp_path)
    assert cluster.map_batches(squares(), records(100), tmp_path).rows == 100
    with pytest.raises(UsageError, match="stage 1 was square and is broken"):
        cluster.map_batches(broken, records(100), tmp_path)


def test_another_kernel_continues_after_the_driver_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], cwd=Path(__file__).parents[2]) as driver:
        try:
            wait_until(lambda: len(listed(out)) >= 2, 60)
        finally:
            driver.kill()
    kept = {name: (out / name).stat().st_mtime_ns for name in listed(out)}
    output = cluster.map_batches(slow_stage(tmp_path / "pids", 0.02), records(2000), out, batch_size=10, part_rows=100)
    assert output.table()["number"].to_pylist() == [2 * number for number in range(2000)]
    assert {name: time for name, time in kept.items() if (out / name).stat().st_mtime_ns != time} == {}
    assert sorted(listed(out)) == sorted(path.name for path in out.glob("*.parquet"))


def test_a_record_that_fails_is_named_or_skipped(cluster: Cluster, tmp_path: Path) -> None:
    def invert(batch: dict[str, Any]) -> dict[str, Any]:
        return {"inverse": np.array([1 / number for number in batch["number"].tolist()])}

    def call(on_error: str) -> Any:
        return cluster.map_batches(invert, records(300), tmp_path, batch_size=20, part_rows=100, on_error=on_error)

    with pytest.raises(
        RankError, match=r"stage 1 \(invert\) failed on row 0 \({'number': 0, .*ZeroDivisionError"
    ) as failed:
        call("raise")
    assert "in invert" in failed.value.traceback
    output = call("skip")
    assert (output.rows, [one.index for one in output.skipped]) == (299, [0])
    assert "ZeroDivisionError" in (tmp_path / "_errors.jsonl").read_text(encoding="utf-8")
    with pytest.raises(RankError, match="failed on row 0"):
        call("raise")


def test_a_stage_that_exits_while_it_is_made_ends_no_rank(cluster: Cluster, tmp_path: Path) -> None:
    class Exits:
        def __init__(self) -> None:
            raise SystemExit(2)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    with pytest.raises(RankError, match=r"stage 1 \(Exits\) could not be made on a rank: SystemExit: 2"):
        cluster.map_batches(Exits, records(10), tmp_path)


def test_parts_in_which_no_image_has_a_box(cluster: Cluster, tmp_path: Path) -> None:
    def find(batch: dict[str, Any]) -> dict[str, Any]:
        none = np.zeros((0, 4))
        return {"boxes": [np.ones((1, 4), np.float32) if number == 15 else none for number in batch["number"].tolist()]}

    output = cluster.map_batches(find, records(40), tmp_path, batch_size=10, part_rows=10)
    expected = [[[1.0] * 4] if number == 15 else [] for number in range(40)]
    assert output.table()["boxes"].to_pylist() == output.dataset().to_table()["boxes"].to_pylist() == expected


def test_a_dask_dataframe(cluster: Cluster, tmp_path: Path) -> None:
    import dask.dataframe as dd
    import pandas as pd

    cluster.dask()
    frame = dd.from_pandas(pd.DataFrame({"number": range(100), "text": "a"}), npartitions=4)
    output = cluster.map_batches(squares(), frame, tmp_path, batch_size=10)
    assert output.table()["square"].to_pylist() == [number**2 for number in range(100)]
    assert [part.name for part in output.parts][-1] == "part-00000003-00000004.parquet"


def test_a_busy_cluster_refuses(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.train("import time; time.sleep(60)", detach=True)
    with pytest.raises(UsageError, match="is running another cell"):
        cluster.map_batches(squares(), records(10), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    cluster.stop_run(run.id)


def write_images(folder: Path, count: int) -> None:
    """Write small PNG files with random pixels into folders of a thousand."""
    from PIL import Image

    pixels = np.random.default_rng(SEED).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    for number, values in enumerate(pixels):
        place = folder / f"{number // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(place / f"{number % 1000:03}.png", compress_level=1)


def image_stages(pids: Path) -> list[Any]:
    """Return two stages, of which the first decodes images and the second computes features with a model."""

    def decode(batch: dict[str, Any]) -> dict[str, Any]:
        import io

        from PIL import Image

        with (pids / str(os.getpid())).open("a") as file:
            file.write(".")
        images = [np.asarray(Image.open(io.BytesIO(data))) for data in batch["bytes"]]
        return {"path": batch["path"], "image": np.stack(images).astype(np.float32).transpose(0, 3, 1, 2) / 255}

    class Features:
        def __init__(self) -> None:
            import torch

            torch.manual_seed(SEED)
            layers = [torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 16)]
            self.model = torch.nn.Sequential(*layers)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            import torch

            with torch.inference_mode():
                return {"path": batch["path"], "features": self.model(torch.from_numpy(batch["image"]))}

    return [decode, Features]


def kill_now_and_then(out: Path, pids: Path, parts: int, over: threading.Event) -> None:
    """Kill a rank that computes whenever one of `KILLS` random numbers of parts is complete."""
    chance = random.Random(SEED)
    for number in sorted(chance.sample(range(1, parts - 1), KILLS)):
        while len(list(out.glob("part-*"))) < number and not over.wait(0.05):
            pass
        wait_until(lambda: alive(pids) or over.is_set(), 60)
        if not over.is_set():
            os.kill(chance.choice(alive(pids)), signal.SIGKILL)


def check_kills_among_images(cluster: Cluster, folder: Path, count: int, part_rows: int) -> None:
    batch_size = 50
    write_images(folder / "images", count)

    def call(out: str) -> Any:
        stages = image_stages(folder / "pids")
        return cluster.map_batches(stages, folder / "images", folder / out, batch_size=batch_size, part_rows=part_rows)

    (folder / "pids").mkdir()
    call("undisturbed")
    over = threading.Event()
    for path in (folder / "pids").iterdir():
        path.unlink()
    arguments = folder / "disturbed", folder / "pids", count // part_rows, over
    killing = threading.Thread(target=kill_now_and_then, args=arguments)
    killing.start()
    try:
        output = call("disturbed")
    finally:
        over.set()
        killing.join()
    assert contents(folder / "disturbed") == contents(folder / "undisturbed")
    assert (output.rows, output.table()["path"][0].as_py()) == (count, "000/000.png")
    computed = sum(path.stat().st_size for path in (folder / "pids").iterdir())
    assert output.run is not None
    kills = len([text for text in output.run.info.warnings if text.startswith("rank ")])
    assert kills == KILLS
    assert count / batch_size <= computed <= count / batch_size + kills * part_rows / batch_size


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_twenty_kills_among_a_hundred_thousand_images(cluster: Cluster, tmp_path: Path) -> None:
    check_kills_among_images(cluster, tmp_path, count=100_000, part_rows=1000)
