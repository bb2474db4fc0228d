"""Tests for the table of runs that `%runs` shows."""

from farandole.notebook.listing import RunList
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RunInfo
from farandole.runs.store import RunStore


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


def test_the_listed_runs_become_a_data_frame(tmp_path):
    store = RunStore(tmp_path)
    for loss in (0.5, 0.25):
        run = store.create(code="", backend="none", size=1, workers=["c-w0"], config={"lr": loss})
        run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"loss": loss})))
        run.finish(Status.FINISHED)
    listed = RunList(store.list()[:1])
    assert listed.dataframe().equals(store.load_runs()[:1])
    assert listed.dataframe()[["config.lr", "series.loss"]].to_numpy().tolist() == [[0.25, 0.25]]
    assert RunList([]).dataframe().empty
