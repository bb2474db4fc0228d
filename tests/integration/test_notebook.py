"""Runs the introductory notebook on a real hub, as `make demo` does."""

import re

import pytest

from tests.demo import run_notebook


# Only for `make release`: tests/browser/test_first_notebook.py runs these cells in a browser for each change.
@pytest.mark.release
def test_the_first_notebook_trains_on_two_ranks_on_both_backends(hub, capsys):
    address = hub.start_notebook("nina")
    result = run_notebook(address, hub.browser("nina").make_token())
    rows = re.findall(r"(\S+)\s+(horovod|torch)\s+(\d)\s+(0\.\d+)", result)
    assert [row[:3] for row in rows] == [
        ("first-cnn", "horovod", "2"),
        ("plain-horovod", "horovod", "2"),
        ("plain-torch", "torch", "2"),
    ]
    assert all(float(accuracy) >= 0.97 for *_, accuracy in rows), result
    shown = capsys.readouterr().out
    assert "ranks 0-1" in shown
    assert "cluster 'main' is stopped" in shown
