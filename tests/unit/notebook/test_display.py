"""Tests for the output that shows a run: live updates, one output at the end, and what nbconvert makes of it."""

import re
import time
from types import SimpleNamespace

import nbformat
import pytest
from farandole.notebook import display
from farandole.notebook.display import RUN_TYPE, RunDisplay, run_bundle
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from nbconvert import HTMLExporter, MarkdownExporter

from spawner_config.settings import ROOT

RENDERER = ROOT / "extension" / "labextension" / "src" / "plugins" / "renderer.tsx"


@pytest.fixture
def run(tmp_path):
    info = RunInfo(id="r1", folder=tmp_path, name="first", size=2, workers=("a", "b"), started=time.time() - 5)
    run = Run(info, "")
    report(run, 0, 1.0)
    return run


@pytest.fixture
def sent(monkeypatch):
    """The messages of a kernel whose clock stands still until a test sets it."""
    messages = []
    clock = SimpleNamespace(now=0.0, time=time.time, monotonic=lambda: clock.now)

    def publish(data, *, transient, update=False):
        messages.append((data, transient["display_id"], update))

    monkeypatch.setattr(display, "publish_display_data", publish)
    monkeypatch.setattr(display, "in_kernel", lambda: True)
    monkeypatch.setattr(display, "time", clock)
    return SimpleNamespace(messages=messages, clock=clock)


def report(run, step, loss):
    run.add_records(0, report_to_json(Report(rank=0, time=0.0, step=step, values={"loss": loss})))


def test_a_bundle_names_the_run_and_has_its_static_forms(run):
    assert run_bundle(run)[RUN_TYPE] == {"run": "r1", "version": 1}
    assert sorted(run_bundle(run)) == [RUN_TYPE, "text/html", "text/plain"]
    assert run_bundle(run)["text/plain"].startswith("Run first (r1) · running · 0:0")
    assert "loss 1" in run_bundle(run)["text/plain"].splitlines()[0]
    run.finish(Status.FINISHED)
    assert sorted(run_bundle(run)) == [RUN_TYPE, "image/svg+xml", "text/html", "text/plain"]


def test_the_renderer_is_registered_for_the_type_of_the_bundle():
    assert f'export const RUN_TYPE = "{RUN_TYPE}";' in RENDERER.read_text(encoding="utf-8")


def test_a_display_is_updated_once_a_second_and_at_the_end(run, sent):
    shown = RunDisplay(run)
    for now in (0.1, 0.9, 1.0, 1.5, 2.0, 2.1):
        sent.clock.now = now
        report(run, int(now * 10), now)
        shown.refresh()
    run.finish(Status.FINISHED)
    shown.refresh()
    shown.refresh()
    assert [update for _, _, update in sent.messages] == [False, True, True, True]
    assert len({display_id for _, display_id, _ in sent.messages}) == 1
    assert "finished" in sent.messages[-1][0]["text/plain"]


def test_a_picture_that_takes_long_is_drawn_less_often(run, sent, monkeypatch):
    def slow(run):
        sent.clock.now += 0.2
        return run_bundle(run)

    monkeypatch.setattr(display, "run_bundle", slow)
    shown = RunDisplay(run)
    sent.clock.now += 4.9
    shown.refresh()
    assert len(sent.messages) == 1
    sent.clock.now += 0.2
    report(run, 1, 2.0)
    shown.refresh()
    assert len(sent.messages) == 2


def test_a_long_run_is_updated_less_and_less_often(run, sent, monkeypatch):
    monkeypatch.setattr(display, "run_bundle", lambda run: {"text/plain": f"after {sent.clock.now} s"})
    shown = RunDisplay(run)
    for now in range(8 * 3600):
        sent.clock.now = now
        shown.refresh()
    assert 1000 < len(sent.messages) < 1400


def test_two_cells_that_show_the_same_run_have_a_display_each(run, sent):
    RunDisplay(run)
    RunDisplay(run)
    assert len({display_id for _, display_id, _ in sent.messages}) == 2


def test_a_notice_after_the_end_is_added_to_the_picture(run, sent):
    shown = RunDisplay(run)
    run.finish(Status.FINISHED)
    shown.refresh()
    run.notice("the tracker is slow")
    shown.refresh()
    assert "the tracker is slow" in sent.messages[-1][0]["text/html"]


def test_a_terminal_shows_the_run_at_its_beginning_and_at_its_end(run, sent, monkeypatch):
    monkeypatch.setattr(display, "in_kernel", lambda: False)
    shown = RunDisplay(run)
    sent.clock.now = 60.0
    shown.refresh()
    run.finish(Status.FINISHED)
    shown.refresh()
    assert [update for _, _, update in sent.messages] == [False, False]
    assert "finished" in sent.messages[-1][0]["text/plain"]


@pytest.mark.parametrize("ended", [True, False])
def test_nbconvert_shows_the_picture_of_a_saved_run_and_no_object(run, ended):
    if ended:
        run.finish(Status.FINISHED)
    output = nbformat.v4.new_output("display_data", run_bundle(run))
    cell = nbformat.v4.new_code_cell("%%distributed_train", outputs=[output])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(notebook)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert len(re.findall(r'<img [^>]*alt="loss: last 1"[^>]*>', page)) == 1
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    assert "Run first (r1)" in text
    for made in (page, text):
        assert "Dashboard" not in made
        assert " object at 0x" not in made
