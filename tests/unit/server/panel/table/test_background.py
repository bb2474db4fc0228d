"""Tests for the thread that runs jobs for which no request waits."""

import threading

from farandole.server.panel.table.background import Background


def test_a_job_that_fails_is_logged_and_does_not_keep_the_others_from_running(caplog):
    background, begin, ended = Background(), threading.Event(), threading.Event()
    background.add("waits", lambda: begin.wait(30))
    background.add("fails", lambda: 1 / 0)
    background.add("ends", ended.set)
    begin.set()
    assert ended.wait(30)
    assert "a background job of the table of runs has failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
