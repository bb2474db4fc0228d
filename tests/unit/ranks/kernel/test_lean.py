from __future__ import annotations

import os
import threading

import pytest
from farandole.ranks.kernel.lean import remember, skip_empty_flushes


class Stream:
    """A stand-in for a kernel's output stream, with only ``write`` and ``flush``."""

    def __init__(self):
        self.texts = []
        self.flushed = 0

    def write(self, text):
        self.texts.append(text)
        return len(text)

    def flush(self):
        self.flushed += 1


def lean():
    stream = Stream()
    skip_empty_flushes(stream, lambda: None, lambda: None)
    stream.flush()
    stream.flushed = 0
    return stream


def test_an_empty_stream_is_not_flushed():
    stream = lean()
    stream.flush()
    assert stream.flushed == 0


def test_written_text_is_flushed_once():
    stream = lean()
    print("step", 1, file=stream, flush=True)
    stream.flush()
    assert "".join(stream.texts) == "step 1\n"
    assert stream.flushed == 1


def test_earlier_text_is_flushed():
    stream = Stream()
    stream.write("before")
    skip_empty_flushes(stream, lambda: None, lambda: None)
    stream.flush()
    assert stream.flushed == 1


def test_a_flush_by_another_thread_during_a_write_replaces_no_flush():
    class Interrupted(Stream):
        def write(self, text):
            self.flush()
            return super().write(text)

    stream = Interrupted()
    skip_empty_flushes(stream, lambda: None, lambda: None)
    stream.write("late")
    before = stream.flushed
    stream.flush()
    assert stream.flushed == before + 1


def test_a_flush_waits_for_the_text_that_another_thread_is_flushing():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Stream):
        def flush(self):
            super().flush()
            if threading.current_thread() is other:
                begun.set()
                assert go_on.wait(10)

    stream = Slow()
    skip_empty_flushes(stream, lambda: None, lambda: None)
    other = threading.Thread(target=stream.flush)
    stream.write("at the end of a cell")
    other.start()
    assert begun.wait(10)
    stream.flush()
    go_on.set()
    other.join(10)
    assert stream.flushed == 2
    stream.flush()
    assert stream.flushed == 2


def test_text_that_is_written_by_a_drain_is_flushed():
    stream = Stream()
    skip_empty_flushes(stream, lambda: stream.write("from a child"), lambda: None)
    stream.flush()
    stream.flush()
    assert stream.flushed == 2


def test_write_returns_the_number_of_characters():
    assert lean().write("four") == 4


def test_each_write_is_noted():
    stream, noted = Stream(), []
    skip_empty_flushes(stream, lambda: None, lambda: noted.append(len(stream.texts)))
    stream.write("a")
    stream.flush()
    stream.write("b")
    assert noted == [0, 1]


def test_the_parameters_of_a_method_are_inspected_once_for_the_same_names():
    inspected = []

    def accepts(method, names):
        inspected.append((method, names))
        return dict.fromkeys(names, True)

    remembered = remember(accepts)
    for method in (print, len, print):
        assert remembered(method, ["cell_id", "cell_meta"]) == {"cell_id": True, "cell_meta": True}
    assert remembered(print, ["cell_id"]) == {"cell_id": True}
    assert inspected == [(print, ["cell_id", "cell_meta"]), (len, ["cell_id", "cell_meta"]), (print, ["cell_id"])]


@pytest.mark.parametrize("name", ["_publish_execute_input", "_publish_status", "finish_metadata"])
def test_ipykernel_still_has_the_replaced_methods(name):
    from ipykernel.kernelbase import Kernel

    assert callable(getattr(Kernel, name))
    assert Kernel._execute_sleep.default_value == 0.0005


def test_a_forked_child_flushes_by_itself():
    stream = lean()
    if (child := os.fork()) == 0:
        stream.flush()
        os._exit(stream.flushed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
