"""Runs the notebook that builds a recommender on a real hub."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import CellError, RemoteKernel
from tests.data import msweb
from tests.notebooks import own_parameters
from tests.recommender import (
    BASELINES,
    CELL_SECONDS,
    NOTEBOOK,
    RECOMMENDER,
    SMALL,
    assert_recommended,
    measures_of,
    run_notebook,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEEDS = range(3)
AT_ONCE = """
import json
model = fd.load_model(SAVED)
with torch.inference_mode():
    scores = model(torch.tensor(history), torch.arange(AREAS + 1).expand(len(history), -1)).numpy()
print(json.dumps([output.rows, len(users), *map(float, evaluated(scores[test], test).values())]))
"""
"""A cell that prints the numbers of rows and of users, and the measures of the model for all users at once."""


@pytest.fixture
def kernel(open_notebook: Callable[[Path], RemoteKernel]) -> RemoteKernel:
    return open_notebook(NOTEBOOK)


@pytest.mark.timeout(600)
def test_the_notebook_trains_a_recommender_and_scores_all_users(kernel: RemoteKernel, tmp_path: Path) -> None:
    outputs = run_notebook(kernel, SMALL.format(data=str(msweb(tmp_path))))
    assert_recommended(outputs)
    rows, users, *measures = json.loads(kernel.execute(AT_ONCE, deadline=CELL_SECONDS))
    assert rows == users
    assert measures == pytest.approx(measures_of(outputs)[RECOMMENDER], abs=2e-3)


@pytest.mark.timeout(300)
def test_without_the_visits_the_notebook_names_the_parameter(kernel: RemoteKernel, tmp_path: Path) -> None:
    with pytest.raises(CellError, match=f"There is no visits.csv in {tmp_path}; put it there, or change DATA"):
        run_notebook(kernel, SMALL.format(data=str(tmp_path)))


@pytest.mark.skipif("FARANDOLE_DATA" not in os.environ, reason="needs the visits of msweb-mini")
@pytest.mark.outside
@pytest.mark.release
@pytest.mark.timeout(3600)
def test_the_recommender_is_better_than_its_baselines(kernel: RemoteKernel, tmp_path: Path) -> None:
    visits = str(msweb(tmp_path))
    for seed in SEEDS:
        outputs = run_notebook(kernel, own_parameters(kernel, DATA=visits, SEED=seed))
        assert_recommended(outputs)
        measures = measures_of(outputs)
        for baseline in BASELINES:
            assert all(own > other for own, other in zip(measures[RECOMMENDER], measures[baseline], strict=True)), (
                measures
            )
