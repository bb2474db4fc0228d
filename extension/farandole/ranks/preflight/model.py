"""Measures a user's model on a rank, and predicts how fast the ranks train it in each mode of ``fd.sync``."""

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


def _measure(model: Any, batch: Any, name: str) -> dict[str, Any]:
    import torch

    from farandole.ranks.training.sync.choice.trial import overheads

    if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        model = model.module
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"{name} is a {type(model).__name__}; --model needs a torch.nn.Module.")
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
