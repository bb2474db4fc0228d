"""Tests for the jobs that no request waits for."""

import threading

import pytest
from farandole.server.panel.table.background import Background

from tests.panel import DEADLINE


@pytest.fixture
def held():
    """Return a background whose thread waits for an event, the event, and a list in which jobs are recorded."""
    background, go = Background(), threading.Event()
    background.add({"first": lambda: go.wait(DEADLINE)})
    yield background, go, []
    go.set()


def jobs(done, *names):
    return {name: (lambda name=name: done.append(name)) for name in names}


def test_urgent_jobs_run_before_all_others_and_waiting_jobs_are_not_added_again(held):
    background, go, done = held
    all_done = background.add(jobs(done, "a", "b"))
    background.add(jobs(done, "b", "c"))
    urgent_done = background.add(jobs(done, "u"), urgent=True)
    assert not urgent_done.wait(0)
    go.set()
    assert background.add(jobs(done, "last")).wait(DEADLINE)
    assert all_done.is_set()
    assert urgent_done.is_set()
    assert done == ["u", "a", "b", "c", "last"]


def test_the_event_of_jobs_that_are_all_waiting_is_set_after_them(held):
    background, go, done = held
    background.add(jobs(done, "a"))
    again = background.add(jobs(done, "a"))
    nothing = background.add({})
    go.set()
    assert again.wait(DEADLINE)
    assert nothing.wait(DEADLINE)
    assert done == ["a"]


def test_a_job_that_fails_is_logged_and_the_other_jobs_run(held, caplog):
    background, go, done = held
    ended = background.add({"broken": lambda: 1 / 0, **jobs(done, "a")})
    go.set()
    assert ended.wait(DEADLINE)
    assert done == ["a"]
    assert "a background job of the table of runs has failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
