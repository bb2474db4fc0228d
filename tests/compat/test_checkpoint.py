"""Tests that training resumes from a checkpoint of the old commit 3ff8f67.

The result must be the same as that of the old commit without an interruption.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from farandole import Cluster, Elastic, load_run
from farandole.runs.run import Run
from farandole.runs.store import RunStore

from tests.compat.places import BROKEN, WHOLE, copy_runs


@pytest.fixture(scope="module", params=[None, Elastic()], ids=["fixed", "elastic"])
def resumed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Run]:
    """A new run that has resumed an old run, and the store of both runs."""
    store = RunStore(copy_runs(tmp_path_factory.mktemp("runs"), WHOLE, BROKEN))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        run = cluster.train(store.load("whole").code, resume="broken", elastic=request.param)
    return store, run


def test_a_run_resumes_from_an_old_checkpoint(resumed: tuple[RunStore, Run]) -> None:
    store, run = resumed
    assert run.resumed_from == BROKEN
    assert f"resumed from step 6, {BROKEN}, written by 2 ranks" in run.notices
    whole = store.load("whole")
    for rank in range(2):
        assert (run.results[rank]["resumed"], run.results[rank]["step"]) == (6, 20)
        assert run.results[rank]["weights"] == pytest.approx(whole.results[rank]["weights"], rel=1e-5)
    ours, theirs = (load_run(key, store.folder).set_index(["rank", "step"])["loss"] for key in (run.id, "whole"))
    expected = theirs[theirs.index.get_level_values("step") > 6]
    assert ours.sort_index().to_dict() == pytest.approx(expected.sort_index().to_dict(), rel=1e-4)


def files(folder: Path) -> dict[str, Path]:
    """Return the files in a run's folder by their relative paths, in which N replaces the step of a checkpoint."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {re.sub("step-[0-9]+", "step-N", str(path.relative_to(folder))): path for path in found}


def content(path: Path) -> Any:
    """Return the content of a JSON file, or the first record in a file of JSON lines."""
    return json.loads(path.read_text(encoding="utf-8").splitlines()[0] if path.suffix == ".jsonl" else path.read_text())


def test_a_new_run_has_the_files_and_keys_of_an_old_one(resumed: tuple[RunStore, Run]) -> None:
    store, run = resumed
    old, now = files(store.folder / BROKEN), files(run.folder)
    assert set(old) <= set(now)
    for name in ("run.json", "view.json", "lines.json", "metrics/rank-0.jsonl", "checkpoints/step-N/manifest.json"):
        assert list(content(old[name])) == [key for key in content(now[name]) if key in content(old[name])], name
    assert content(now["checkpoints/step-N/manifest.json"])["format"] == 1
