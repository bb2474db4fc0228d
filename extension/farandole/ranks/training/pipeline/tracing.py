"""Records the calls of a model's modules as a graph, with torch.fx.

Only the code of modules that contain the beginning of a stage is recorded. All other modules are single calls in the
graph, so their code may do anything.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.fx.proxy import Proxy, TraceError

from farandole.exceptions import UsageError

INPUT = "input_"
"""The beginning of the names of the model's inputs in a graph. A number follows."""
FACTORIES = (
    *(torch.arange, torch.empty, torch.eye, torch.full, torch.linspace),
    *(torch.ones, torch.rand, torch.randn, torch.tril_indices, torch.zeros),
)
"""Functions that make tensors, for example of the size of an input. torch.fx does not record them by itself."""


class StageTracer(fx.Tracer):
    """Traces the forward pass of a model, and finds where its stages begin.

    Args:
        split: the names of the modules that begin a stage.

    Attributes:
        starts: the number of nodes in the graph before the first call of each of these modules.
    """

    proxy_buffer_attributes = True

    def __init__(self, split: Sequence[str]) -> None:
        super().__init__(autowrap_functions=FACTORIES)
        # The functions are replaced in this module during the trace.
        self._autowrap_search.append(torch)
        self._split = frozenset(split)
        self._traced = ancestors(split)
        self.starts: dict[str, int] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002 - torch passes both
        """Return whether a module is a single call in the graph."""
        return module_qualified_name not in self._traced

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the call of a module."""
        if m not in (self.submodule_paths or {}):
            # A container that forward() makes, such as a slice of an nn.Sequential.
            return forward(*args, **kwargs)
        if (name := self.path_of_module(m)) in self._split:
            self.starts.setdefault(name, len(self.graph.nodes))
        return super().call_module(m, forward, args, kwargs)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:  # noqa: ARG002
        """Return ``forward`` and its arguments. Those that have a default keep it."""
        count = len(required_inputs(root_fn))
        return root_fn, [
            self.root,
            *(self.create_proxy("placeholder", f"{INPUT}{index}", (), {}) for index in range(count)),
        ]

    def to_bool(self, obj: Proxy) -> bool:
        """Return True for the condition of an assertion, which holds for a model that works."""
        # The frame of `Proxy.__bool__` is between this one and that of the model.
        return _is_asserted(sys._getframe(2)) or super().to_bool(obj)


def ancestors(names: Sequence[str]) -> frozenset[str]:
    """Return the names of all modules that contain one of the named modules. That of the model itself is empty."""
    return frozenset(".".join(name.split(".")[:depth]) for name in names for depth in range(name.count(".") + 1))


def required_inputs(forward: Callable[..., Any]) -> list[str]:
    """Return the names of the positional arguments of an unbound ``forward`` that have no default.

    Raises UsageError if there is none, or if a further argument has to be named.
    """
    _, *parameters = inspect.signature(forward).parameters.values()
    single = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    required = [one for one in single if one.default is one.empty]
    if not required or any(one.kind is one.KEYWORD_ONLY for one in required):
        raise UsageError(
            f"fd.pipeline: {forward.__qualname__} must have one positional argument or more without a default, which "
            "are the inputs of the model; arguments with a default keep it."
        )
    return [one.name for one in required]


def traced(model: nn.Module, split: Sequence[str]) -> dict[bool, tuple[fx.Graph, list[int]]]:
    """Return the graph of a model and the positions in it where stages begin, for training and for evaluation.

    Raises UsageError if the forward pass cannot be recorded, or does not call one of the named modules.
    """
    return {mode: _traced(model, split, training=mode) for mode in (True, False)}


def _traced(model: nn.Module, split: Sequence[str], *, training: bool) -> tuple[fx.Graph, list[int]]:
    tracer = StageTracer(split)
    with _mode(model, ancestors(split), training=training):
        try:
            graph = tracer.trace(model)
        except (TraceError, TypeError, RuntimeError, NotImplementedError) as exc:
            # torch.fx raises these if the code needs a value, for example as a condition or the end of a loop.
            raise UsageError(
                f"fd.pipeline: forward() of {type(model).__name__} cannot be cut, because it needs the value or the "
                f"size of a tensor ({str(exc).splitlines()[0]}); move that code into a module that is inside one stage."
            ) from exc
    if missing := [name for name in split if name not in tracer.starts]:
        raise UsageError(
            f"fd.pipeline: forward() of {type(model).__name__} does not call {missing[0]!r}; name a module that it "
            "calls, for example a member of an nn.ModuleList instead of the list."
        )
    return graph, sorted(tracer.starts.values())


@contextmanager
def _mode(model: nn.Module, names: frozenset[str], *, training: bool) -> Iterator[None]:
    """Set the mode of the modules whose code is traced, and restore it on exit."""
    modules = [model.get_submodule(name) for name in names]
    before = [module.training for module in modules]
    for module in modules:
        module.training = training
    try:
        yield
    finally:
        for module, mode in zip(modules, before, strict=True):
            module.training = mode


def _is_asserted(frame: FrameType) -> bool:
    """Return whether a frame computes the condition of an assertion at this moment."""
    following = (one.opname for one in dis.get_instructions(frame.f_code) if one.offset >= frame.f_lasti)
    names = list(itertools.islice(following, 3))
    # Python 3.13 converts the condition to a truth value one instruction before it jumps.
    return any("JUMP" in jump and after == "LOAD_ASSERTION_ERROR" for jump, after in itertools.pairwise(names))
