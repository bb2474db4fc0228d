"""A checkpoint that 3ff8f67 wrote is taken up by ranks of today: the training ends as it would have ended then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from farandole import Cluster, Elastic, load_run
from farandole.runs.store import RunStore

from tests.compat.places import BROKEN, WHOLE, copy_runs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("elastic", [None, Elastic()], ids=["fixed", "elastic"])
def test_a_run_resumes_from_it(tmp_path: Path, elastic: Elastic | None) -> None:
    store = RunStore(copy_runs(tmp_path / "runs", WHOLE, BROKEN))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        run = cluster.train(store.load("whole").code, resume="broken", elastic=elastic)
    assert run.resumed_from == BROKEN
    assert f"resumed from step 6, {BROKEN}, written by 2 ranks" in run.notices
    whole = store.load("whole")
    for rank in range(2):
        assert (run.results[rank]["resumed"], run.results[rank]["step"]) == (6, 20)
        assert run.results[rank]["weights"] == pytest.approx(whole.results[rank]["weights"], rel=1e-5)
    ours, theirs = (load_run(key, store.folder).set_index(["rank", "step"])["loss"] for key in (run.id, "whole"))
    expected = theirs[theirs.index.get_level_values("step") > 6]
    assert ours.sort_index().to_dict() == pytest.approx(expected.sort_index().to_dict(), rel=1e-4)
