"""The modules of stages: what a rank keeps of a model, and how it computes a part of the forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.deferred import Materializer
from farandole.ranks.training.pipeline import tracing
from farandole.ranks.training.pipeline.cutting import StageGraph, cut

Modes = Mapping[bool, StageGraph]
"""The graph of a stage for training (True) and for evaluation (False)."""


class Stage(nn.Module):
    """One stage of a model.

    Args:
        module (torch.nn.Module): what this rank has of the model, which all of its stages share.
        modes: the graphs of the stage.
        is_last (bool): whether this is the last stage.
    """

    def __init__(self, module: nn.Module, modes: Modes, *, is_last: bool) -> None:
        super().__init__()
        self.module = module
        self._modes = modes
        self._runs = {mode: fx.Interpreter(module, graph=one.graph) for mode, one in modes.items()}
        for run in self._runs.values():
            run.extra_traceback = False  # it would add lines about the graph to the messages of errors
        self._is_last = is_last

    @property
    def handed(self) -> tuple[str, ...]:
        """The names of the values that the next stage receives."""
        return self._modes[self.module.training].handed

    def forward(self, *received: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """Return what the model returns, or a tuple of what the next stage receives.

        Args:
            *received: what the stage before this one has returned.
            **inputs: the inputs of the model, by their names in the graph.
        """
        run = self._runs[self.module.training]
        ordered = [inputs[f"{tracing.INPUT}{index}"] for index in range(len(inputs))]
        try:
            result = run.run(*received, *ordered)
        finally:
            run.env = {}  # it would keep the result until the next call
        return result if self._is_last else tuple(map(_sendable, result))


def _sendable(value: Any) -> Any:
    """Return a tensor that can be sent to the next stage, and which gradients from there reach.

    A stage whose parameters are all frozen has results without gradients. That a stage gets gradients must not depend
    on that, because the ranks would have to agree on it whenever the user freezes parameters.
    """
    if not isinstance(value, torch.Tensor):
        return value
    value = value.contiguous()
    if torch.is_grad_enabled() and not value.requires_grad and has_gradients(value.dtype):
        return value.detach().requires_grad_()
    return value


def has_gradients(dtype: torch.dtype) -> bool:
    """Return whether tensors of this dtype can have gradients."""
    return dtype.is_floating_point or dtype.is_complex


def stages_of(model: nn.Module, split: Sequence[str]) -> list[Modes]:
    """Return the graphs of all stages of a model.

    Raises UsageError if the model cannot be cut there.
    """
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    found = {mode: cut(*one, names) for mode, one in tracing.traced(model, split).items()}
    return [{mode: found[mode][index] for mode in found} for index in range(len(split) + 1)]


def subtree(model: nn.Module, stages: Iterable[Modes], materialize: Materializer) -> nn.Module:
    """Return a module with the modules, parameters and buffers of some stages, under the names that the model has.

    Args:
        model: the whole model.
        stages: the stages.
        materialize: gives memory to modules of the model that have none.
    """
    tree = _bare(model)
    # What contains other targets comes before them.
    for target in sorted(_targets(stages)):
        *path, name = target.split(".")
        home, source = tree, model
        for part in path:
            source = getattr(source, part)
            if not hasattr(home, part):
                setattr(home, part, _bare(source))
            home = getattr(home, part)
        if not hasattr(home, name):
            value = getattr(source, name)
            if isinstance(value, nn.Module):
                materialize(value)
            else:
                materialize.only(source)
            _share(home, source, name)
    return tree


def _bare(source: nn.Module) -> nn.Module:
    made = nn.Module()
    made.training = source.training
    return made


def _share(home: nn.Module, source: nn.Module, name: str) -> None:
    value = getattr(source, name)
    if name in source._buffers:
        home.register_buffer(name, value, persistent=name not in source._non_persistent_buffers_set)
    else:
        setattr(home, name, value)


def _targets(stages: Iterable[Modes]) -> set[str]:
    return {target for modes in stages for one in modes.values() for target in one.targets}


def shared_parameters(model: nn.Module, stages: Sequence[Modes]) -> list[dict[int, str]]:
    """Return the names of each parameter that several stages have, by the numbers of these stages.

    Raises UsageError if a stage has no parameters.
    """
    homes: dict[int, dict[int, str]] = {}
    for index, modes in enumerate(stages):
        own = dict(_parameters(model, _targets([modes])))
        if not own:
            raise UsageError(
                f"fd.pipeline: stage {index} of {len(stages)} has no parameters to train; split the model at other "
                "modules."
            )
        for name, parameter in own.items():
            homes.setdefault(id(parameter), {}).setdefault(index, name)
    return [names for names in homes.values() if len(names) > 1]


def _parameters(model: nn.Module, targets: Iterable[str]) -> Iterable[tuple[str, nn.Parameter]]:
    for target in targets:
        *path, name = target.split(".")
        value = getattr(model.get_submodule(".".join(path)), name)
        if isinstance(value, nn.Module):
            yield from value.named_parameters(target)
        elif isinstance(value, nn.Parameter):
            yield target, value
