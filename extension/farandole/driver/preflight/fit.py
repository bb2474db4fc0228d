"""Predicts whether a user's model fits on the ranks, and shows it as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.exceptions import UsageError
from farandole.sizes import share_text, size_text

HEAD = ("mesh", "ranks", "memory of a rank", "fits")
FIT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class MeshFit:
    """How many bytes each rank of a mesh ``needs`` to train a model, and whether it ``fits``."""

    mesh: str
    ranks: int
    needs: int
    fits: bool


@dataclass(frozen=True, kw_only=True)
class ModelFit:
    """Whether a model fits on the rank with the least memory, whose ``capacity`` is in bytes.

    - ``parameters``, ``gradients`` and ``optimizer`` are the bytes of the whole model, trained with Adam.
    - ``meshes`` begins with the model without a mesh.
    - ``advice`` names the smallest mesh on which the model fits.
    """

    name: str
    parameters: int
    gradients: int
    optimizer: int
    capacity: int
    advice: str
    meshes: tuple[MeshFit, ...]

    @property
    def whole(self) -> bool:
        """True if the model fits without a mesh."""
        return self.meshes[0].fits

    def __str__(self) -> str:
        return (
            f"{self.name}: {size_text(self.parameters)} of parameters, {size_text(self.gradients)} of gradients, "
            f"{size_text(self.optimizer)} of optimizer state with Adam"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's row for each mesh."""
        return [
            (
                "none" if number == 0 else one.mesh,
                str(one.ranks),
                share_text(one.needs, self.capacity),
                "yes" if one.fits else "no",
            )
            for number, one in enumerate(self.meshes)
        ]


async def predict_fit(group: RankGroup, model: str) -> ModelFit:
    """Predict whether a model fits. ``model`` is the name of a variable on the ranks.

    Raises:
        UsageError: the variable is no model.
    """
    found = await group.control(rank_calls.fit_model(model), what=f"reading the size of {model}", timeout=FIT_SECONDS)
    if errors := [one["error"] for one in found if "error" in one]:
        raise UsageError(errors[0])
    return model_fit(model, max(found, key=lambda one: float(one["rows"][0]["needs"] / one["capacity"])))


def model_fit(name: str, answer: dict[str, Any]) -> ModelFit:
    """Convert the answer of `farandole.ranks.preflight.model.fit` on a rank."""
    return ModelFit(
        name=name,
        parameters=answer["parameters"],
        gradients=answer["gradients"],
        optimizer=answer["optimizer"],
        capacity=answer["capacity"],
        advice=answer["advice"],
        meshes=tuple(MeshFit(**row) for row in answer["rows"]),
    )
