"""Tests that the reply to a cell says that the cell has left the world."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from farandole.protocol import WORLD_LEFT
from farandole.ranks.kernel import departures


@pytest.fixture
def shell(monkeypatch):
    shell = SimpleNamespace(
        user_expressions=lambda expressions: {name: f"<{one}>" for name, one in expressions.items()}
    )
    monkeypatch.setattr(departures, "get_ipython", lambda: shell)
    return shell


def test_a_reply_says_that_the_world_is_gone(shell):
    departures.install(lambda: False)
    assert shell.user_expressions({"value": "x"}) == {"value": "<x>", WORLD_LEFT: True}


def test_a_reply_is_unchanged_while_the_world_exists(shell):
    departures.install(lambda: True)
    assert shell.user_expressions({"value": "x"}) == {"value": "<x>"}
    assert shell.user_expressions({}) == {}


def test_it_is_installed_once(shell):
    departures.install(lambda: False)
    installed = shell.user_expressions
    departures.install(lambda: True)
    assert shell.user_expressions is installed


def test_nothing_happens_outside_a_kernel(monkeypatch):
    monkeypatch.setattr(departures, "get_ipython", lambda: None)
    departures.install(lambda: False)
