"""Tests that a version of a data set arrives unchanged on another machine.

The engine is a program that runs the commands on folders in place of volumes. tests/docker has a test with a real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.manifest import verify
from farandole.datasets.versions.names import parse_version

from images.data.bundle import DataBundleError, main, write_data
from images.names import IMAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

DIGITS = parse_version("digits@2")
ENGINE = f"""#!{sys.executable}
import os, pathlib, shutil, subprocess, sys
volumes, words = pathlib.Path(os.environ["VOLUMES"]), sys.argv[1:]
if words[:2] == ["volume", "inspect"]:
    sys.exit(not (volumes / words[2]).exists())
if words[:2] == ["volume", "rm"]:
    subprocess.run(["chmod", "-R", "u+w", volumes / words[2]])
    shutil.rmtree(volumes / words[2])
if words[0] == "run":
    options = dict(word.split("=", 1) for word in words if word.startswith(("--volume=", "--entrypoint=")))
    image = next(number for number, word in enumerate(words) if word.startswith("farandole-notebook:"))
    folder = volumes / options["--volume"].split(":")[0]
    folder.mkdir(exist_ok=True)
    binds = [word.split("source=")[1].split(",") for word in words if word.startswith("--mount=type=bind")]
    places = {{target.removeprefix("target="): source for source, target, _ in binds}}
    places["/data"] = str(folder)
    arguments = [places.get(word, word.replace("/data", str(folder))) for word in words[image + 1 :]]
    sys.exit(subprocess.run([options["--entrypoint"], *arguments]).returncode)
"""


@pytest.fixture
def volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that take the place of the engine's volumes."""
    for name in ("bin", "volumes"):
        (tmp_path / name).mkdir()
    engine = tmp_path / "bin" / "docker"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}")  # noqa: PTH120
    monkeypatch.setenv("VOLUMES", str(tmp_path / "volumes"))
    monkeypatch.setenv("FARANDOLE_STATE", str(tmp_path / "state"))
    return tmp_path / "volumes"


def make_version(tmp_path: Path, folder: Path) -> str:
    """Make a version in a folder and return its digest."""
    (tmp_path / "source" / "train").mkdir(parents=True)
    (tmp_path / "source" / "train" / "a.txt").write_text("1")
    folder.mkdir(parents=True)
    return copy_version(tmp_path / "source", folder).digest


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """The program `load` in the folder of a bundle."""
    folder = tmp_path / "farandole-0.1.0"
    folder.mkdir()
    for file in (IMAGES / "load", ROOT / "docker-compose.yml"):
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "load").chmod(0o755)
    return folder / "load"


def run(load: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([load, *files], capture_output=True, text=True, check=False)


def test_a_volume_arrives_unchanged(tmp_path: Path, volumes: Path, load: Path) -> None:
    digest = make_version(tmp_path, volumes / "digits-v2")
    file = write_data(DIGITS, tmp_path / "dist")
    (volumes / "digits-v2").rename(volumes / "moved")
    loaded = run(load, file)
    assert loaded.returncode == 0, loaded.stderr
    assert digest in loaded.stdout
    assert "Add digits@2:/data/digits to FARANDOLE_SHARED_VOLUMES" in loaded.stdout
    assert verify(volumes / "digits-v2") == digest


def test_a_version_of_a_hub_without_containers_arrives_unchanged(tmp_path: Path, volumes: Path, load: Path) -> None:
    digest = make_version(tmp_path, tmp_path / "state" / "datasets" / "digits" / "2")
    assert run(load, write_data(DIGITS, tmp_path / "dist")).returncode == 0
    assert verify(volumes / "digits-v2") == digest


def test_an_existing_volume_is_not_changed(tmp_path: Path, volumes: Path, load: Path) -> None:
    digest = make_version(tmp_path, volumes / "digits-v2")
    refused = run(load, write_data(DIGITS, tmp_path / "dist"))
    assert refused.returncode == 1
    assert "There is a volume digits-v2 already" in refused.stderr
    assert "remove it first: docker volume rm digits-v2" in refused.stderr
    assert verify(volumes / "digits-v2") == digest


def test_a_damaged_file_leaves_no_volume(tmp_path: Path, volumes: Path, load: Path) -> None:
    make_version(tmp_path, tmp_path / "state" / "datasets" / "digits" / "2")
    file = write_data(DIGITS, tmp_path / "dist")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"1".ljust(512, b"\0"), b"2".ljust(512, b"\0")))
    refused = run(load, file)
    assert refused.returncode == 1
    assert "differs from its manifest in 1 file, such as 'train/a.txt'" in refused.stderr
    assert not list(volumes.iterdir())


@pytest.mark.parametrize("name", ["digits.tar", "digits@2.tar", "images.tar.gz"])
def test_what_is_no_data_set_is_named(tmp_path: Path, volumes: Path, load: Path, name: str) -> None:
    if name == "digits.tar":
        (tmp_path / name).write_text("")
    refused = run(load, tmp_path / name)
    assert refused.returncode == 1
    assert f"{name} is no file of a data set" in refused.stderr
    assert not list(volumes.iterdir())


def test_a_changed_version_is_not_written(tmp_path: Path, volumes: Path) -> None:
    for folder in (volumes / "digits-v2", tmp_path / "state" / "datasets" / "web" / "1"):
        subprocess.run(["rm", "-rf", tmp_path / "source"], check=True)
        make_version(tmp_path, folder)
        (folder / "train").chmod(0o755)
        (folder / "train" / "b.txt").write_text("new")
    for version in ("digits@2", "web@1"):
        with pytest.raises(DataBundleError, match=f"{version} was not written"):
            write_data(parse_version(version), tmp_path / "dist")
    assert not list((tmp_path / "dist").glob("*"))


def test_nothing_is_overwritten(tmp_path: Path, volumes: Path) -> None:
    make_version(tmp_path, volumes / "digits-v2")
    file = write_data(DIGITS, tmp_path / "dist")
    with pytest.raises(DataBundleError, match="exists already"):
        write_data(DIGITS, tmp_path / "dist")
    assert file.exists()


@pytest.mark.usefixtures("volumes")
def test_a_missing_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataBundleError, match="There is no volume 'digits-v2' for digits@2"):
        write_data(DIGITS, tmp_path / "dist")
    with pytest.raises(DataBundleError, match="DATA is 'digits': .* write imagenet@2"):
        main("digits")
