"""Tests for the validation of views that drivers have written."""

from farandole.server.panel import wire
from farandole.server.panel.views import fits

from tests.unit.server.panel.test_strange_runs import VIEW
from tests.unit.server.panel.test_wire import misfit


def test_the_check_of_views_agrees_with_the_types_of_the_messages():
    assert fits(VIEW, wire.RunView)
    for key in VIEW:
        assert not fits({name: value for name, value in VIEW.items() if name != key}, wire.RunView)
        assert fits({**VIEW, key: object()}, wire.RunView) is (misfit({**VIEW, key: object()}, wire.RunView) is None)
