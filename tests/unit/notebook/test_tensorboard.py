"""Tests that TensorBoard's own reader can read a run's event files, and that errors end only these files."""

import builtins

import pytest
from farandole.exceptions import UsageError
from farandole.notebook.tensorboard import TensorBoardWriter, check_tensorboard
from farandole.notebook.watcher import Watcher
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore


def start(tmp_path):
    return RunStore(tmp_path / "runs").create(code="", backend="torch", size=2, workers=["a", "b"])


def test_event_files_hold_every_report_of_every_rank(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = start(tmp_path)
    writer = TensorBoardWriter(run)
    for step in range(50):
        for rank in range(2):
            values = {"loss": float(step * (rank + 1))}
            run.add_records(rank, report_to_json(Report(rank=rank, time=float(step), step=step, values=values)))
    run.finish(Status.FINISHED)
    writer.close()
    events = EventAccumulator(str(run.folder / "tensorboard" / "rank-1"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(step, step * 2.0) for step in range(50)]


def test_event_files_hold_the_hyperparameters(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = start(tmp_path)
    writer = TensorBoardWriter(run)
    values = {"lr": 0.1, "name": "adam", "augment": True, "seed": None}
    run.add_records(0, {"kind": "config", "rank": 0, "time": 1.0, "values": values})
    run.finish(Status.FINISHED)
    writer.close()
    events = EventAccumulator(str(run.folder / "tensorboard" / "rank-0"))
    events.Reload()
    content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    assert all(name in content for name in (b"lr", b"name", b"adam", b"augment"))


def test_an_unwritable_folder_ends_only_the_event_files(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    run = start(tmp_path)
    writer = TensorBoardWriter(run)
    for step in range(3):
        run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=step, values={"loss": 1.0})))
    writer.close()
    assert len(run.dataframe()) == 3
    assert sum("TensorBoard" in text for text in run.info.warnings) == 1
    (tmp_path / "runs").unlink()
    run.finish(Status.FINISHED)


def test_a_missing_tensorboard_is_reported_before_the_run(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith(("torch.utils.tensorboard", "tensorboard")):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        check_tensorboard()


def test_event_files_of_a_detached_run_are_closed_with_it(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(TensorBoardWriter, "close", lambda _: closed.append(True))
    run = start(tmp_path)
    refresh = Watcher(tensorboard=True)(run)
    refresh()
    assert closed == []
    run.finish(Status.FINISHED)
    refresh()
    refresh()
    assert closed == [True]


@pytest.mark.parametrize(
    "values", [{"step": 2**63 - 1, "values": {"\ud800": 1.0}}, {"step": 2**62, "values": {"\udcff": 1.0}}]
)
def test_a_name_that_has_no_place_in_an_event_file_ends_the_event_files_only(tmp_path, values):
    run = start(tmp_path)
    writer = TensorBoardWriter(run)
    run.add_records(0, {"kind": "report", "rank": 0, "time": 1.0, **values})
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"loss": 1.0})))
    writer.close()
    assert run.dataframe()["loss"].tolist()[-1] == 1.0
    assert sum("TensorBoard" in text for text in run.notices) == 1
    run.finish(Status.FINISHED)
