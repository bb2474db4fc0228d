"""Saves models of rank 0 after a run."""

from __future__ import annotations

from functools import partial
from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import Progress
from farandole.exceptions import ModelError, UsageError
from farandole.models.model import checked_labels, checked_metrics, commit_of
from farandole.models.names import parse_name
from farandole.runs.model import RunInfo
from farandole.runs.run import Run

SAVE_SECONDS = 600.0
"""How long the export of a large model may take."""


class ModelSaver:
    """Saves models of the run that the ranks of a cluster have begun last."""

    def __init__(self, core: ClusterCore, loop: LoopThread, progress: Progress) -> None:
        self.newest = ""
        """The id of the run that the ranks have begun last."""
        self._core = core
        self._loop = loop
        self._progress = progress

    def attach(self, run: Run) -> None:
        """Let `Run.save_model` save models of a run."""
        run.saver = partial(self._save, run)

    def _save(self, run: Run, request: dict[str, Any]) -> str:
        return self._loop.call(self._save_on_rank(run.info, request))

    async def _save_on_rank(self, info: RunInfo, request: dict[str, Any]) -> str:
        call = _call(info, request)
        async with self._core.cell(self._progress):
            # Variables of the ranks outlive a run, and the next one may use the same names.
            if info.id != self.newest:
                raise UsageError(
                    f"the cluster has begun run {self.newest} since run {info.id}, so a variable may have a model of "
                    "that run; save a model before the next run begins, or in its cell, with fd.save_model"
                )
            group = self._core.group
            [found] = await group.control(
                call, what=f"saving the model {request['name']}", timeout=SAVE_SECONDS, kernels=group.kernels[:1]
            )
        if error := found.get("error"):
            raise ModelError(error)
        return found["saved"]


def _call(info: RunInfo, request: dict[str, Any]) -> RankCall[dict[str, str]]:
    """Return the call for the arguments of `Run.save_model`. A rank gets them as source, so they must be plain."""
    return rank_calls.save_variable(
        model=str(request["model"]),
        name=str(parse_name(request["name"])),
        run_id=info.id,
        example=str(request["example"]),
        options={
            "git": commit_of(info.git),
            "metrics": checked_metrics(request["metrics"]),
            "data": str(request["data"]),
            "labels": list(checked_labels(request["labels"])),
            "onnx": bool(request["onnx"]),
        },
    )
