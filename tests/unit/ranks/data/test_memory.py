"""Tests of a rank's share of the memory, and of how freed memory gets back to the system."""

import ctypes
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import psutil
import pyarrow as pa
import pytest
from farandole.ranks.data.memory import memory_limit, release_free_memory

BLOCKS, BLOCK = 20_000, 10_000


@pytest.mark.parametrize(
    ("limit", "ranks", "share"), [("1000", "1", 750), ("1000", "4", 187), ("", "1", None), (None, "1", None)]
)
def test_a_rank_may_use_its_share_of_the_workers_memory(monkeypatch, limit, ranks, share):
    monkeypatch.setenv("FARANDOLE_LOCAL_SIZE", ranks)
    monkeypatch.delenv("FARANDOLE_MACHINE_SIZE", raising=False)
    if limit is None:
        monkeypatch.delenv("MEM_LIMIT", raising=False)
    else:
        monkeypatch.setenv("MEM_LIMIT", limit)
    if share is None:
        assert 2**28 < memory_limit() <= psutil.virtual_memory().total
    else:
        assert memory_limit() == share


def test_freed_memory_gets_back_to_the_system():
    # In a process of its own, because the blocks would otherwise fill gaps between objects of other tests.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        assert process.submit(released_bytes).result() > 0.9 * BLOCKS * BLOCK


def released_bytes():
    """Free many blocks of memory, and return how many bytes `release_free_memory` then gives back."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    used = psutil.Process().memory_info
    # An array has the addresses. Objects of Python for them could lie between the blocks, and would keep their pages.
    blocks = (ctypes.c_void_p * BLOCKS)()
    for number in range(BLOCKS):
        blocks[number] = libc.malloc(BLOCK)
        ctypes.memset(blocks[number], 1, BLOCK)
    # The block at the end of the heap stays, so that free cannot shrink the heap.
    last = max(range(BLOCKS), key=blocks.__getitem__)
    for number in range(BLOCKS):
        if number != last:
            libc.free(blocks[number])
    before = used().rss
    release_free_memory()
    return before - used().rss


def test_without_the_gnu_c_library_the_memory_of_arrow_is_released(monkeypatch):
    released = []
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr(pa, "default_memory_pool", lambda: Pool(released))
    release_free_memory()
    assert released == [True]


class Pool:
    def __init__(self, released):
        self._released = released

    def release_unused(self):
        self._released.append(True)
