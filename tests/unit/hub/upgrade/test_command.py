"""Tests for the command line of `make upgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hub.upgrade import __main__ as command
from hub.upgrade.__main__ import main, read_settings
from hub.upgrade.compose import UpgradeError

if TYPE_CHECKING:
    from pathlib import Path

DIGESTS = "FARANDOLE_REGISTRY=r/\nFARANDOLE_VERSION=0.2.0\nFARANDOLE_HUB_IMAGE=r/farandole-hub@sha256:1\n"
JOURNAL = '{"before": "0.1.0", "settings": {"FARANDOLE_VERSION": "0.2.0"}}'


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The upgrades that the command ran."""
    upgrades: list[Any] = []

    def record(upgrade: Any) -> None:
        upgrades.append(upgrade)

    monkeypatch.setattr(command.Upgrade, "run", record)
    return upgrades


def test_a_version_and_a_folder(ran: list[Any], tmp_path: Path) -> None:
    assert main(["0.2.0", str(tmp_path)], {"TO": "none"}) == 0
    [upgrade] = ran
    assert upgrade.hub.folder == tmp_path
    assert upgrade.settings == {"FARANDOLE_VERSION": "0.2.0"}


def test_the_lines_of_make_publish(tmp_path: Path) -> None:
    (tmp_path / "new.env").write_text(DIGESTS)
    found = read_settings("", str(tmp_path / "new.env"))
    assert found == {
        "FARANDOLE_REGISTRY": "r/",
        "FARANDOLE_VERSION": "0.2.0",
        "FARANDOLE_HUB_IMAGE": "r/farandole-hub@sha256:1",
    }
    with pytest.raises(UpgradeError, match="is for version 0.2.0, and VERSION is 0.3.0"):
        read_settings("0.3.0", str(tmp_path / "new.env"))
    (tmp_path / "new.env").write_text(f"{DIGESTS}FARANDOLE_ADMIN=me\n")
    with pytest.raises(UpgradeError, match="Remove FARANDOLE_ADMIN"):
        read_settings("0.2.0", str(tmp_path / "new.env"))


def test_mistakes_are_named(ran: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {}) == 2
    assert main(["0.2.0", str(tmp_path)], {}) == 1
    assert "TO=PLACE" in capsys.readouterr().err
    assert main(["0.2.0", str(tmp_path)], {"TO": "none", "SETTINGS": str(tmp_path / "none.env")}) == 1
    assert "none.env" in capsys.readouterr().err
    assert ran == []


def test_an_interrupted_upgrade_needs_no_place(ran: list[Any], tmp_path: Path) -> None:
    (tmp_path / ".upgrade").mkdir()
    (tmp_path / ".upgrade" / "versions.json").write_text(JOURNAL)
    assert main(["0.2.0", str(tmp_path)], {}) == 0
    assert len(ran) == 1


def test_an_interruption_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_upgrade: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.Upgrade, "run", interrupted)
    assert main(["0.2.0", str(tmp_path)], {"TO": "none"}) == 1
    assert "Run the command again" in capsys.readouterr().err
