"""Tests for the validation of views that drivers have written."""

import json

from farandole.runs.view_files import VIEW as VIEW_FILE
from farandole.server.panel import wire
from farandole.server.panel.views import LATER_KEYS, fits, read_view

from tests.unit.server.panel.test_strange_runs import VIEW
from tests.unit.server.panel.test_wire import misfit


def test_the_check_of_views_agrees_with_the_types_of_the_messages():
    assert fits(VIEW, wire.RunView)
    for key in VIEW:
        assert not fits({name: value for name, value in VIEW.items() if name != key}, wire.RunView)
        assert fits({**VIEW, key: object()}, wire.RunView) is (misfit({**VIEW, key: object()}, wire.RunView) is None)


def test_a_view_of_an_older_release_has_no_times_and_no_time_left(tmp_path):
    series = {"name": "loss", "x_label": "step", "bad": 0, "bad_x": [], "last": 0.5, "ranks": None}
    old = {**series, "x": [1], "mean": [0.5], "low": [0.5], "high": [0.5]}
    kept = {key: value for key, value in VIEW.items() if key not in LATER_KEYS}
    (tmp_path / VIEW_FILE).write_text(json.dumps({**kept, "series": [old]}))
    view = read_view(tmp_path)
    assert misfit(view, wire.RunView) is None
    assert (view["series"][0]["time"], view["series"][0]["epoch"], view["seconds_left"]) == ([], [], None)
