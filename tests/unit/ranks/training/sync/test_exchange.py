"""Work beside the training."""

import os
import threading

import pytest
from farandole.ranks.training.sync import exchange


def test_work_beside_the_training_has_a_lower_priority_and_returns_its_result():
    found = exchange.beside(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result(10)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert found == min(own + exchange.NICENESS, exchange.LOWEST)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_work_is_done_where_the_priority_cannot_be_changed(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", refuse)
    assert exchange.beside(lambda: 1).result(10) == 1


def test_the_error_of_work_is_that_of_its_future():
    def fail():
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(RuntimeError, match="closed by peer"):
        exchange.beside(fail).result(10)
