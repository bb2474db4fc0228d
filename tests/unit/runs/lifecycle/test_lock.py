"""Tests for the lock of a run store, which several hosts may share."""

import errno
import fcntl
import threading

import pytest
from farandole.runs.lifecycle import lock
from farandole.runs.lifecycle.lock import LOCK, changing

SECONDS = 20


def test_changes_of_a_store_come_one_after_the_other(tmp_path):
    inside, order = threading.Event(), []

    def other():
        inside.set()
        with changing(tmp_path):
            order.append("other")

    thread = threading.Thread(target=other, name="other server")
    with changing(tmp_path):
        thread.start()
        assert inside.wait(SECONDS)
        thread.join(0.2)
        order.append("own")
    thread.join(SECONDS)
    assert order == ["own", "other"]
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_lock_that_another_process_keeps_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOCK_SECONDS", 0.1)
    locked = pytest.raises(TimeoutError, match="Another server keeps the runs locked")
    with changing(tmp_path), locked, changing(tmp_path):
        pass
    with changing(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSPC])
def test_a_volume_without_locks_can_be_changed(tmp_path, monkeypatch, number):
    def fails(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", fails)
    done = []
    with changing(tmp_path):
        done.append(True)
    assert done


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), changing(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()
