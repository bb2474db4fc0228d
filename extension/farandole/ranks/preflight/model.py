"""Measures a user's model on a rank, and predicts whether it fits and how fast it trains with each ``fd.sync``."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.kernel.variables import variable
from farandole.ranks.training.sync.choice.prediction import Conditions, predictions, slowest

if TYPE_CHECKING:
    import torch

WARM_UPS = 2
"""Steps that are not counted, because memory is allocated and code is compiled in them."""
STEPS = 10
STEPS_SECONDS = 30.0
"""No new step begins after this many seconds."""


def measure(model: str, batch: str) -> dict[str, Any]:
    """Return the size of a model and the times of its steps on this rank without communication, or an error.

    ``model`` and ``batch`` are names of variables on this rank. The steps use a copy of the model, so that its
    parameters, gradients and statistics do not change. The copy is on this rank's device, to which ``fd.prepare`` would
    move the model. The steps have no step of an optimizer.
    """
    try:
        return _measure(variable(model), variable(batch), model)
    except UsageError as exc:
        return {"error": str(exc)}


def fit(model: str) -> dict[str, Any]:
    """Return how much memory the training of a model with Adam needs on a rank, or an error.

    ``model`` is the name of a variable on this rank. The model may have no memory yet, as from ``fd.deferred``. The
    result has the bytes of ``parameters``, ``gradients`` and ``optimizer`` state, the ``capacity`` of this rank, an
    ``advice``, and a row for each mesh, with its number of ``ranks``, the bytes that this rank ``needs`` and ``fits``.
    """
    try:
        return _fit(variable(model), model)
    except UsageError as exc:
        return {"error": str(exc)}


def predict(figures: Mapping[str, float], overheads: Sequence[Mapping[str, Sequence[float]]]) -> list[dict[str, Any]]:
    """Return a row for each mode, as `farandole.ranks.training.sync.choice.prediction.predictions` does.

    ``figures`` has the keys ``step``, ``forward``, ``all_reduce`` and ``latency`` (seconds), and ``bytes``.
    ``overheads`` has what each rank computes for an average, as `measure` returns it.
    """
    conditions = Conditions(
        step=figures["step"],
        all_reduce=figures["all_reduce"],
        ranks=len(overheads),
        overheads=slowest(overheads),
        latency=figures["latency"],
    )
    return [asdict(row) for row in predictions(conditions, forward=figures["forward"], size=int(figures["bytes"]))]


def _fit(value: Any, name: str) -> dict[str, Any]:
    import torch

    from farandole.ranks.training.mesh.fit import advice, meshes, needs_of

    model, ranks = _module(value, name), context.size()
    if any(map(torch.nn.parameter.is_lazy, model.parameters())):
        raise UsageError(f"{name} has lazy modules, whose sizes are not known; call the model with a batch first.")
    needs = needs_of(model)
    rows = [
        {"mesh": str(shape), "ranks": shape.ranks, "needs": needs.on(shape), "fits": needs.fits(shape)}
        for shape in meshes(needs, ranks)
    ]
    return {
        "parameters": needs.parameters,
        "gradients": needs.gradients,
        "optimizer": needs.optimizer,
        "capacity": needs.capacity,
        "rows": rows,
        "advice": advice(needs, ranks, name, context.backend()),
    }


def _module(value: Any, name: str) -> torch.nn.Module:
    """Return the value of a variable as a module, without a wrapper for several ranks or GPUs."""
    import torch

    from farandole.ranks.training.pipeline.model import Pipeline

    if isinstance(value, Pipeline):
        raise UsageError(
            f"{name} is a pipeline, of which each rank has a stage; --model needs the model before it is cut."
        )
    if isinstance(value, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        value = value.module
    if not isinstance(value, torch.nn.Module):
        raise UsageError(f"{name} is a {type(value).__name__}; --model needs a torch.nn.Module.")
    return value


def _measure(value: Any, batch: Any, name: str) -> dict[str, Any]:
    import torch

    from farandole.ranks.training.sync.choice.trial import overheads

    model = _module(value, name)
    if any(one.is_meta for one in model.parameters()):
        raise UsageError(f"{name} has no memory, because it was made in fd.deferred; leave out --batch.")
    device = context.device()
    try:
        own = copy.deepcopy(model).to(device).train()
    except Exception as exc:  # the model may have methods of its own for copies
        raise UsageError(f"{name} cannot be copied ({type(exc).__name__}: {exc}), so its steps are not timed.") from exc
    trained = [one for one in own.parameters() if one.requires_grad]
    if not trained:
        raise UsageError(f"{name} has no parameters that require gradients, so there is nothing to average.")
    # Dropout must not change the numbers that the user draws later.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        forward, step = _times(own, _on(batch, device))
    vector = torch.zeros(sum(one.numel() for one in trained), dtype=torch.float32, device=device)
    return {"bytes": vector.nbytes, "forward": forward, "step": step, "overheads": overheads(vector)}


def _times(model: torch.nn.Module, batch: Any) -> tuple[float, float]:
    """Return the median seconds of a forward pass, and of a forward and a backward pass."""
    import torch

    on_gpu = next(model.parameters()).is_cuda
    wait: Callable[[], object] = torch.cuda.synchronize if on_gpu else lambda: None
    forwards, steps = [], []
    deadline = time.perf_counter() + STEPS_SECONDS
    for number in range(WARM_UPS + STEPS):
        model.zero_grad()
        wait()
        begun = time.perf_counter()
        try:
            output = _call(model, batch)
            wait()
            forward = time.perf_counter()
            _loss(output).backward()  # type: ignore[no-untyped-call]
        except UsageError:
            raise
        except Exception as exc:  # the model is code of the user
            raise UsageError(
                f"the model does not accept this batch: {type(exc).__name__}: {exc}. Give a batch as the model gets it."
            ) from exc
        wait()
        if number >= WARM_UPS or time.perf_counter() > deadline:
            forwards.append(forward - begun)
            steps.append(time.perf_counter() - begun)
        if time.perf_counter() > deadline:
            break
    return statistics.median(forwards), statistics.median(steps)


def _call(model: torch.nn.Module, batch: Any) -> Any:
    """Call the model with a tensor, with the first element of a pair such as (x, y), or with a mapping of arguments."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch[0] if isinstance(batch, tuple | list) else batch)


def _loss(output: Any) -> torch.Tensor:
    """Return a number whose gradients reach all outputs."""
    parts = [one.float().square().mean() for one in _tensors(output) if one.is_floating_point() and one.requires_grad]
    if not parts:
        raise UsageError("the output of the model has no tensor with gradients, so its steps cannot be timed.")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(one)


def _on(batch: Any, device: torch.device) -> Any:
    """Return the batch on a device."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _on(value, device) for key, value in batch.items()}
    return [_on(value, device) for value in batch] if isinstance(batch, tuple | list) else batch
