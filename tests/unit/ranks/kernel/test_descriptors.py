"""Tests for reading the output of C code and child processes, with a pipe in place of a kernel's file descriptor."""

from __future__ import annotations

import os
import threading
import time

import pytest
from farandole.ranks.kernel import descriptors
from farandole.ranks.kernel.descriptors import DescriptorReader


class Stream:
    """A stand-in for a kernel's output stream whose descriptor is a pipe, which a thread reads."""

    def __init__(self):
        self._fid, self._original_stdstream_fd = os.pipe()
        self._original_stdstream_copy = os.open(os.devnull, os.O_WRONLY)
        self._should_watch = True
        self.texts = []
        self.watch_fd_thread = threading.Thread(target=os.read, args=(self._fid, 1000), daemon=True)
        self.watch_fd_thread.start()

    def write(self, text):
        self.texts.append(text)

    def arrives(self, data):
        os.write(self._original_stdstream_fd, data)


@pytest.fixture
def stream():
    return Stream()


@pytest.fixture
def reader(stream):
    reader = DescriptorReader(stream)
    reader._read_on = lambda: None
    reader.take_over()
    return reader


def test_a_flush_passes_on_what_has_arrived(stream, reader):
    stream.arrives(b"from a child\n")
    reader.drain()
    assert stream.texts == ["from a child\n"]
    reader.drain()
    assert stream.texts == ["from a child\n"]


def test_a_character_that_arrives_in_two_parts_stays_whole(stream, reader):
    for part in ("é".encode()[:1], "é".encode()[1:]):
        stream.arrives(part)
        reader.drain()
    assert "".join(stream.texts) == "é"


def test_output_without_end_delays_a_flush_only_shortly(stream, reader, monkeypatch):
    monkeypatch.setattr(descriptors, "CHUNK_BYTES", 1)
    stream.write = lambda _text: time.sleep(descriptors.MOST_SECONDS)
    stream.arrives(b"without end")
    reader.drain()
    assert reader._is_readable(0)


def test_output_between_cells_is_passed_on_by_the_thread(stream):
    DescriptorReader(stream).take_over()
    assert not stream.watch_fd_thread.is_alive()
    stream.arrives(b"late")
    deadline = time.monotonic() + 60
    while not stream.texts:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert stream.texts == ["late"]


def test_a_flush_waits_until_the_thread_has_passed_on_what_it_has_read(stream):
    reader, reading, may_write = DescriptorReader(stream), threading.Event(), threading.Event()

    def write(text):
        reading.set()
        may_write.wait(60)
        Stream.write(stream, text)

    stream.write = write
    reader.take_over()
    stream.arrives(b"end of the cell")
    assert reading.wait(60)
    threading.Timer(0.1, may_write.set).start()
    reader.drain()
    assert stream.texts == ["end of the cell"]


def test_a_kernel_that_does_not_redirect_its_descriptors_has_nothing_to_read(stream):
    stream._fid = None
    reader = DescriptorReader(stream)
    reader.take_over()
    reader.drain()
    assert stream.texts == []
    assert stream._should_watch


def test_ipykernel_still_reads_its_descriptors_in_this_way():
    from ipykernel.iostream import OutStream

    assert callable(OutStream._watch_pipe_fd)
    assert callable(OutStream._setup_stream_redirects)
