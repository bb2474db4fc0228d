"""Bring the images to a machine that has none, through a registry or in one file, and train on two workers there."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from images.bundle import write_bundle
from images.names import CPU, HUB, NOTEBOOK, SERVING, SERVING_TORCH, version
from spawner_config.settings import ROOT
from tests.cells import SUM
from tests.docker import registry
from tests.docker.bare import HERE, SUBNETS, bare_engine, empty
from tests.docker.engines.base_image import NAME as BASE_IMAGE
from tests.docker.stack import Stack, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.docker.engines.second import SecondEngine

CELL_SECONDS = 240.0
CARRIED = {
    "docker-compose.yml",
    ".env.example",
    "backup",
    "doctor",
    "load",
    "images.tar.gz",
    "notebooks/01-first-distributed-training.ipynb",
}
WRITE_WITH_LITTLE_ROOM = """
import resource, sys
from pathlib import Path
from images.bundle import PublishError, write, write_bundle
folder, room = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    {call}
except PublishError as exc:
    sys.exit(str(exc))
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[SecondEngine]:
    with bare_engine() as engine:
        yield engine


@pytest.fixture
def nothing_there(machine: SecondEngine) -> SecondEngine:
    empty(machine)
    assert not machine.docker("image", "ls", "--all", "--quiet")
    return machine


def train_on_two_workers(stack: Stack) -> None:
    with stack.kernel("ada", "lean") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
        assert len([name for name in stack.containers() if "--" in name]) == 2
        output = kernel.execute(f"%%distributed\n{SUM['horovod']}", deadline=CELL_SECONDS)
        assert output.split()[-1] == "2", output
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


@pytest.mark.release
def test_published_images_are_pulled_by_digest_and_train(tmp_path: Path, nothing_there: SecondEngine) -> None:
    with registry.running(HERE) as published:
        settings = published.publish()
        stack = Stack(tmp_path, subnets=SUBNETS, engine=nothing_there, **settings)
        try:
            stack.compose("pull")
            carried = published.sent()
            stack.up()
            train_on_two_workers(stack)
        except BaseException:
            print(stack.logs())
            raise
        finally:
            stack.down()
        assert published.sent() == carried, "an image was pulled after `docker compose pull`"
    used = stack.docker("image", "ls", "--digests", "--format", "{{.Repository}}@{{.Digest}}").split()
    assert set(used) == {settings["FARANDOLE_HUB_IMAGE"], settings["FARANDOLE_NOTEBOOK_IMAGE"]}


@pytest.mark.release
def test_a_bundle_contains_everything_and_trains(
    tmp_path: Path, nothing_there: SecondEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATOR", CPU)
    bundle = write_bundle(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [bundle.name]
    with tarfile.open(bundle) as archive:
        archive.extractall(tmp_path, filter="data")
    bundle.unlink()
    folder = tmp_path / bundle.stem
    assert {name for name in CARRIED if (folder / name).exists()} == CARRIED

    environment = {**os.environ, "DOCKER_HOST": nothing_there.url}
    said = subprocess.run([folder / "load"], env=environment, check=True, capture_output=True, text=True).stdout
    assert all(image.tag(version()) in said for image in (HUB, NOTEBOOK, SERVING, SERVING_TORCH))
    assert (folder / ".env").stat().st_mode & 0o777 == 0o600
    (home := tmp_path / "home").mkdir()
    with running(home, subnets=SUBNETS, engine=nothing_there, source=folder) as stack:
        train_on_two_workers(stack)


@pytest.mark.parametrize(
    ("call", "room"),
    # Use a small image, because the engine packs a whole image before it writes the first byte.
    [("write_bundle(folder)", 1_000), (f"write([{BASE_IMAGE!r}], folder)", 5_000_000)],
    ids=["settings", "images"],
)
def test_a_full_disk_leaves_no_partial_bundle(tmp_path: Path, call: str, room: int) -> None:
    folder = tmp_path / "dist"
    command = [sys.executable, "-c", WRITE_WITH_LITTLE_ROOM.format(call=call), str(folder), str(room)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "No bundle was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(folder.iterdir()) == []
