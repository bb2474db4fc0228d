"""Saves models of rank 0 after a run."""

from __future__ import annotations

from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.kernels import rank_calls
from farandole.driver.workers.worker import Progress
from farandole.exceptions import ModelError

SAVE_SECONDS = 600.0
"""How long the export of a large model may take."""


async def save_model(core: ClusterCore, progress: Progress, run_id: str, request: dict[str, Any]) -> str:
    """Save the model in a variable of rank 0, and return its version.

    ``request`` has ``model``, ``name`` and ``example`` of `Run.save_model`, and ``options`` with its other arguments.
    """
    call = rank_calls.save_variable(run_id=run_id, **request)
    async with core.cell(progress):
        group = core.group
        [found] = await group.control(
            call, what=f"saving the model {request['name']}", timeout=SAVE_SECONDS, kernels=group.kernels[:1]
        )
    if error := found.get("error"):
        raise ModelError(error)
    return found["saved"]
