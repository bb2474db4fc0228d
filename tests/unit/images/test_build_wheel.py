from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RECIPE: dict[str, Any] = runpy.run_path(str(ROOT / "images" / "horovod" / "build_wheel.py"))


def write_source(folder: Path) -> None:
    for edit in RECIPE["EDITS"]:
        path = folder / edit.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + edit.old + "\n")


def test_every_edit_is_made(tmp_path: Path) -> None:
    write_source(tmp_path)
    RECIPE["apply_edits"](tmp_path)
    for edit in RECIPE["EDITS"]:
        assert edit.new in (tmp_path / edit.path).read_text()


def test_an_unexpected_source_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path)
    (tmp_path / "setup.py").write_text("something else")
    with pytest.raises(SystemExit, match=r"setup\.py"):
        RECIPE["apply_edits"](tmp_path)


def test_another_build_has_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plain = RECIPE["cache_folder"]()
    monkeypatch.setenv("HOROVOD_GPU", "CUDA")
    assert plain.is_relative_to(tmp_path)
    assert RECIPE["cache_folder"]() != plain
