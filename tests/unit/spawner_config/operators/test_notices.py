"""Tests for changes of notices by several processes at once, and on volumes that are full or have no locks."""

from __future__ import annotations

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.operators import notices as module
from spawner_config.operators.notices import LOCK, MOST, Notice, Notices

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


def message(number: int = 0) -> Notice:
    return Notice(by="olga", at=NOW + timedelta(seconds=number), text=f"{number}")


def texts(tmp_path: Path) -> list[str]:
    return [notice.text for notice in Notices(tmp_path).of("ada", NOW)]


def failing(number: int) -> Any:
    """Return a function that fails as a system call does."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_no_notice_is_lost_between_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The disk of a busy machine may be slow.
    monkeypatch.setattr(module, "LOCK_SECONDS", 120.0)
    # Each writer opens the lock file itself, as another process does.
    with ThreadPoolExecutor(MOST) as writers:
        list(writers.map(lambda number: Notices(tmp_path).add("ada", message(number)), range(MOST)))
    assert sorted(map(int, texts(tmp_path))) == list(range(MOST))
    assert sorted(path.suffix for path in (tmp_path / "notices").iterdir()) == [".json", LOCK]


def test_a_writer_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    notices = Notices(tmp_path)
    notices.add("ada", message(1))
    [path] = tmp_path.rglob("*.json")
    with path.with_suffix(LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        notices.add("grace", message(3))
        with pytest.raises(OSError, match="Another process keeps the notices locked"):
            notices.add("ada", message(2))
        with pytest.raises(OSError, match="Another process keeps the notices locked"):
            notices.correct("ada", message(1), ())
        assert texts(tmp_path) == ["1"]
    notices.add("ada", message(2))
    assert texts(tmp_path) == ["1", "2"]


def test_a_volume_without_locks_keeps_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    Notices(tmp_path).add("ada", message(1))
    assert texts(tmp_path) == ["1"]
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        Notices(tmp_path).add("ada", message(2))


def test_a_full_disk_keeps_the_earlier_notices_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices = Notices(tmp_path)
    notices.add("ada", message(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space left"):
            notices.add("ada", message(2))
    assert texts(tmp_path) == ["1"]
    assert sorted(path.suffix for path in (tmp_path / "notices").iterdir()) == [".json", LOCK]


def test_an_interrupted_write_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Notices(tmp_path).add("ada", message(1))
    assert [path.suffix for path in (tmp_path / "notices").iterdir()] == [LOCK]


def test_a_file_that_another_process_has_repaired_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices = Notices(tmp_path)
    notices.add("ada", message(1))
    [path] = tmp_path.rglob("*.json")
    good = path.read_bytes()
    path.write_bytes(b"[")

    def repaired(*_: object) -> None:
        path.write_bytes(good)

    monkeypatch.setattr(module, "_take", repaired)
    assert texts(tmp_path) == ["1"]
    assert not path.with_suffix(".old").exists()


def test_a_page_does_not_wait_for_a_process_that_repairs_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Notices(tmp_path).add("ada", message(1))
    [path] = tmp_path.rglob("*.json")
    path.write_bytes(b"[")
    with path.with_suffix(LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert texts(tmp_path) == []
    assert "The notices for 'ada' are not shown" in caplog.text
    assert path.exists()
