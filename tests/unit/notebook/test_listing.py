"""Tests for the table of runs that `%runs` shows."""

from farandole.notebook.listing import RunList
from farandole.protocol import Status
from farandole.runs.model import RunInfo


def test_a_run_has_its_start_with_the_zone_and_its_duration(set_zone, tmp_path):
    set_zone("Asia/Bangkok")
    run = RunInfo(id="a", folder=tmp_path, status=Status.FINISHED, ended=3723.0, backend="torch", size=2)
    assert repr(RunList([run])).splitlines() == [
        "id  name  status  started  duration  ranks  backend  config",
        "a  -  finished  1970-01-01 07:00 UTC+07:00  1:02:03  2  torch  -",
    ]


def test_hyperparameters_are_shown_in_short_and_never_as_html(tmp_path):
    config = {"lr": 0.01, "name": "<b>", "augment": False, "text": "x" * 100}
    listed = RunList([RunInfo(id="a", folder=tmp_path, config=config)])
    [row] = listed.rows()
    assert row[-1].startswith("lr=0.01, name=<b>, augment=False, text=xxx")
    assert row[-1].endswith("x…")
    assert len(row[-1]) == 60
    assert "name=&lt;b&gt;" in listed._repr_html_()
