"""Tests that the cleanup removes copies of commits that killed ranks left behind, and keeps copies in use."""

import os
import time

import pytest
import torch
from farandole.protocol import Part
from farandole.ranks.checkpoints.memory_checkpoint import MemoryCheckpoint
from farandole.ranks.state.state import state as fd_state
from farandole.server.journal import cleanup
from farandole.server.journal.journals import Journals

RUN = "20260101-000000-abcd"
OLD = time.time() - 2 * cleanup.OLD_SECONDS


class Owner:
    has_driver = True

    def end_stopped_run(self):
        raise AssertionError("unexpected stop of this kernel")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def copies(folder, *workers, run=RUN, modified=OLD):
    for worker in workers:
        path = folder / f"farandole-{run}-{worker}-0"
        path.write_bytes(b"x")
        os.utime(path, (modified, modified))


def test_old_copies_are_removed_and_recent_ones_wait_for_replacement_ranks(tmp_path):
    copies(tmp_path, "c-w0")
    copies(tmp_path, "c-w1", modified=time.time() - cleanup.OLD_SECONDS / 2)
    other = tmp_path / "farandole-other"
    other.write_bytes(b"x")
    os.utime(other, (OLD, OLD))
    cleanup.remove_stale_copies(tmp_path)
    assert names(tmp_path) == [f"farandole-{RUN}-c-w1-0", "farandole-other"]


def test_an_old_copy_of_a_live_rank_that_commits_rarely_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_WORKER", "c-w0")
    one, state = MemoryCheckpoint(RUN, tmp_path), fd_state(torch.nn.Linear(1, 1))
    state.commit()
    one.save(state, None)
    [path] = tmp_path.iterdir()
    os.utime(path, (OLD, OLD))
    cleanup.remove_stale_copies(tmp_path)
    assert names(tmp_path) == [path.name]
    os.close(one._locks.pop(path))  # This releases the lock, as the end of the rank's process would.
    cleanup.remove_stale_copies(tmp_path)
    assert names(tmp_path) == []


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """The folder in which the ranks of this worker store their copies."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setenv("FARANDOLE_WORKER", "c-w1")
    monkeypatch.setattr(cleanup, "copies_folder", lambda: folder)
    return folder


def begin(store, run, kernel="k"):
    store.note_request(kernel, "begin", {"run": run, "part": Part.BEGIN, "rank": 0, "about": {}}, Owner())
    return store.get(run, kernel)


def test_a_ranks_copies_are_removed_with_its_run_and_others_are_kept(tmp_path, memory):
    store = Journals(tmp_path)
    first, second = begin(store, RUN, "a"), begin(store, RUN, "b")
    state = fd_state(torch.nn.Linear(1, 1))
    state.commit()
    MemoryCheckpoint(RUN, memory).save(state, None)
    copies(memory, "c-w10")
    copies(memory, "c-w1", run="20260101-000000-beef")
    mine = f"farandole-{RUN}-c-w1-1"
    store.end(first, completed=True)
    assert mine in names(memory)
    store.end(second, completed=True)
    assert names(memory) == [f"farandole-{RUN}-c-w10-0", "farandole-20260101-000000-beef-c-w1-0"]


def test_copies_outlive_dead_ranks_until_another_run_begins(tmp_path, memory):
    store = Journals(tmp_path)
    store.end(begin(store, RUN, "a"), completed=False)
    copies(memory, "c-w1")
    begin(store, RUN, "b").end()
    assert names(memory) == [f"farandole-{RUN}-c-w1-0"]
    begin(store, "20260101-000000-beef", "c")
    assert names(memory) == []


def test_a_new_rank_that_cannot_join_keeps_the_copies_of_the_dead_ranks(tmp_path, memory):
    store = Journals(tmp_path)
    store.end(begin(store, RUN, "a"), completed=False)
    copies(memory, "c-w1")
    store.end(begin(store, RUN, "b"), completed=True)
    assert names(memory) == [f"farandole-{RUN}-c-w1-0"]


async def test_copies_are_removed_with_their_worker(tmp_path, memory):
    store = Journals(tmp_path)
    begin(store, RUN, "a").end()
    copies(memory, "c-w1")
    await store.persist_all()
    assert names(memory) == []
