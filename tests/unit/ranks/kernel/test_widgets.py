"""Tests that widgets of a rank are shown as text that follows their state."""

import pytest
from farandole.protocol import AREA_TYPE
from farandole.ranks.kernel import widgets
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output
from ipywidgets import FloatProgress, HBox, Label, Output
from tqdm.notebook import tqdm


@pytest.fixture(autouse=True)
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setattr(widgets, "get_ipython", lambda: shell)
    widgets.install()
    yield shell
    InteractiveShell.clear_instance()


def shown(work):
    with capture_output() as captured:
        work()
    return [(output.data, output.transient["display_id"], output.update) for output in captured.outputs]


def test_a_progress_bar_of_tqdm_is_text_that_is_updated():
    outputs = shown(lambda: list(tqdm(range(1000), desc="batches", mininterval=0)))
    assert {tuple(data) for data, _, _ in outputs} == {("text/plain",)}
    assert len({display_id for _, display_id, _ in outputs}) == 1
    assert [update for _, _, update in outputs] == [False] + [True] * (len(outputs) - 1)
    texts = [data["text/plain"] for data, _, _ in outputs]
    assert texts[0].startswith("batches:   0%|          | 0/1000")
    assert texts[-1].startswith("batches: 100%|██████████| 1000/1000")
    assert len(texts) == len(set(texts)) > 10


def test_a_bar_that_does_not_stay_becomes_empty():
    outputs = shown(lambda: list(tqdm(range(3), leave=False)))
    assert outputs[-1][0] == {"text/plain": ""}


def test_a_widget_follows_its_children():
    label = Label("before")

    def work():
        display(HBox([HBox([label]), FloatProgress(1.0)]))
        label.value = "after"

    first, second = shown(work)
    assert (first[1], second[2]) == (second[1], True)


def test_a_widget_with_a_richer_form_keeps_it():
    class Rich(Label):
        def _repr_mimebundle_(self, **_):
            return {"text/html": "<b>x</b>", "text/plain": "x", widgets.VIEW_TYPE: {}}, {}

    with capture_output() as captured:
        display(Rich())
    assert [output.data for output in captured.outputs] == [{"text/html": "<b>x</b>", "text/plain": "x"}]


def test_an_output_widget_names_its_area_while_it_captures():
    output = Output()

    def work():
        display(output)
        output.msg_id = "request"
        output.msg_id = ""

    areas = [data[AREA_TYPE] for data, _, _ in shown(work)]
    assert areas == [output.model_id, ""]
