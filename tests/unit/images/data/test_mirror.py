"""Tests for `make mirror`. The engine is the program of test_bundle.py, whose volumes are folders."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from farandole.datasets.versions.manifest import verify

from images.data.mirror import FOLDER, VOLUME, DataMirrorError, main, target
from tests.unit.images.data.test_bundle import make_version, volumes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["volumes"]


@pytest.fixture
def there(tmp_path: Path) -> tuple[Path, str]:
    """The data sets of another hub, and the digest of digits@2."""
    digest = make_version(tmp_path, tmp_path / "there" / "digits" / "2")
    return tmp_path / "there", digest


def test_a_hub_without_containers_gets_the_version(
    tmp_path: Path, volumes: Path, there: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    assert target() == FOLDER
    main("digits@2", str(there[0]))
    said = capsys.readouterr().out
    assert "1 of 1 files were copied" in said
    assert f"digits@2 is here: {there[1]}\nAdd digits@2:/data/digits to FARANDOLE_SHARED_VOLUMES." in said
    data_set = tmp_path / "state" / "datasets" / "digits"
    assert [path.name for path in data_set.iterdir()] == ["2"]
    assert verify(data_set / "2") == there[1]
    main("digits@2", str(there[0]))
    assert "0 of 1 files were copied" in capsys.readouterr().out
    assert not list(volumes.iterdir())


def test_an_incomplete_mirror_is_not_published_and_continues(
    tmp_path: Path, volumes: Path, there: tuple[Path, str]
) -> None:
    file = there[0] / "digits" / "2" / "train" / "a.txt"
    file.chmod(0o644)
    file.write_text("damaged")
    with pytest.raises(DataMirrorError, match="digits@2 is not mirrored: 'train/a.txt' from the source differs"):
        main("digits@2", str(there[0]), FOLDER)
    data_set = tmp_path / "state" / "datasets" / "digits"
    assert [path.name for path in data_set.iterdir()] == [".mirror-2"]
    file.write_text("1")
    main("digits@2", str(there[0]), FOLDER)
    assert [path.name for path in data_set.iterdir()] == ["2"]
    assert verify(data_set / "2") == there[1]
    assert not list(volumes.iterdir())


def test_another_version_with_this_name_is_not_replaced(tmp_path: Path, there: tuple[Path, str], volumes: Path) -> None:
    shutil.rmtree(tmp_path / "source")
    digest = make_version(tmp_path / "other", tmp_path / "state" / "datasets" / "digits" / "2")
    assert digest == there[1]
    make = tmp_path / "state" / "datasets" / "digits" / "2" / ".manifest-sha256.txt"
    make.chmod(0o644)
    make.write_text(f"{'0' * 64}  another.txt\n")
    with pytest.raises(DataMirrorError, match="never replaced"):
        main("digits@2", str(there[0]), FOLDER)
    assert not list(volumes.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digits", "/there"), "write imagenet@2"),
        (("digits@2", ""), "FROM is empty"),
        (("digits@2", "/there", "disk"), "TO is 'disk'. It must be folder"),
        (("digits@2", "/nowhere", FOLDER), "digits@2 is not mirrored: neither /nowhere nor"),
        (("digits@2", "https://hub.example.org/hub/home", FOLDER), "not the address of a notebook server"),
    ],
)
def test_invalid_arguments_are_explained(volumes: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataMirrorError, match=message):
        main(*arguments)
    assert not list(volumes.iterdir())


def test_an_engine_gets_the_version_in_a_volume(
    volumes: Path, there: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert target() == VOLUME
    main("digits@2", str(there[0]))
    assert f"digits@2 is here: {there[1]}" in capsys.readouterr().out
    assert verify(volumes / "digits-v2") == there[1]
    main("digits@2", str(there[0]))


def test_a_failed_mirror_of_a_volume_says_how_to_continue(volumes: Path, there: tuple[Path, str]) -> None:
    (there[0] / "digits" / "2" / "train" / "a.txt").chmod(0o644)
    (there[0] / "digits" / "2" / "train" / "a.txt").write_text("damaged")
    with pytest.raises(DataMirrorError, match="digits@2 is not complete; the reason is above. Run this again"):
        main("digits@2", str(there[0]))
    assert (volumes / "digits-v2").is_dir()
