"""Saves a model that a variable of the user's namespace holds, when the notebook asks for it after a run."""

from __future__ import annotations

from typing import Any

from farandole.exceptions import FarandoleError
from farandole.ranks.kernel.variables import variable
from farandole.ranks.models.save import save


def save_variable(model: str, name: str, run_id: str, example: str, options: dict[str, Any]) -> dict[str, str]:
    """Save the model in the variable ``model``, and return ``saved`` with its version, or ``error`` with the reason.

    ``example`` names the variable with the example, or is empty.
    """
    try:
        found = variable(example) if example else None
        return {"saved": save(variable(model), name, run_id=run_id, example=found, **options)}
    except FarandoleError as exc:
        return {"error": str(exc)}
