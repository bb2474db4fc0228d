"""Cuts the graph of a model into those of its stages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import fx

from farandole.exceptions import UsageError

STATE = ("call_module", "get_attr")
"""The kinds of torch.fx nodes that refer to a module, a parameter or another attribute of the model."""


@dataclass(frozen=True, kw_only=True)
class StageGraph:
    """The graph of one stage.

    Attributes:
        graph: its arguments are what the stage receives, then all inputs of the model. A stage that is not the last
            returns a tuple of what the next stage receives.
        handed: the names of the values that the next stage receives. Some of them may come from earlier stages.
        targets: the names of the modules, parameters and buffers that the stage uses.
    """

    graph: fx.Graph
    handed: tuple[str, ...]
    targets: frozenset[str]


def cut(graph: fx.Graph, starts: Sequence[int], parameters: Iterable[str]) -> list[StageGraph]:
    """Return the graphs of the stages of a model.

    A stage sends the values that later stages need. Values that depend on nothing but the inputs of the model, such as
    the length of a sequence or a mask, are computed in each stage that needs them, because all ranks have the inputs.
    Random numbers are sent, because ranks draw different ones.

    Args:
        graph: the graph of the model.
        starts: the positions of the nodes that begin the second and each further stage, in ascending order.
        parameters: the names of the model's parameters.

    Raises:
        UsageError: the model returns something other than a tensor or a tuple of tensors.
    """
    cutter = _Cutter(graph, starts, frozenset(parameters))
    return [cutter.stage(index) for index in range(len(starts) + 1)]


class _Cutter:
    def __init__(self, graph: fx.Graph, starts: Sequence[int], parameters: frozenset[str]) -> None:
        *self._nodes, self._output = graph.nodes
        _check_output(self._output.args[0])
        self._last = len(starts)
        self._home = {node: bisect_right(starts, place) for place, node in enumerate(self._nodes)}
        self._home[self._output] = self._last
        self._inputs = [node for node in self._nodes if node.op == "placeholder"]
        self._parameters = parameters

    @cached_property
    def _repeated(self) -> set[fx.Node]:
        """The nodes that each stage has for itself if it needs them."""
        free = set(self._inputs)
        for node in self._nodes:
            buffer = node.op == "get_attr" and node.target not in self._parameters
            calls = node.op in ("call_function", "call_method") and not _is_random(node)
            computed = calls and free.issuperset(node.all_input_nodes)
            if buffer or computed:
                free.add(node)
        return free | {node for node in self._nodes if node.op == "get_attr"}

    def _handed(self, index: int) -> list[fx.Node]:
        """Return the nodes whose values a stage hands to the next one."""
        return [
            node
            for node in self._nodes
            if node not in self._repeated
            and self._home[node] <= index
            and any(self._home[user] > index for user in node.users)
        ]

    def stage(self, index: int) -> StageGraph:
        """Return the graph of the stage with this number."""
        own = {node for node in self._nodes if self._home[node] == index and node not in self._repeated}
        handed = self._handed(index) if index < self._last else []
        results = handed if index < self._last else self._output.all_input_nodes
        used = own | self._needed([*results, *(one for node in own for one in node.all_input_nodes)])
        graph, new = fx.Graph(), {}
        for node in (*(self._handed(index - 1) if index else ()), *self._inputs):
            new[node] = graph.placeholder(node.name)
        for node in self._nodes:
            if node in used and node not in new:
                new[node] = graph.node_copy(node, new.__getitem__)
        graph.output(tuple(new[node] for node in handed) if index < self._last else _mapped(self._output, new))
        targets = frozenset(str(node.target) for node in used if node.op in STATE)
        return StageGraph(graph=graph, handed=tuple(node.name for node in handed), targets=targets)

    def _needed(self, nodes: Iterable[fx.Node]) -> set[fx.Node]:
        """Return the repeated nodes among ``nodes``, and those from which they are computed or that change them."""
        found: set[fx.Node] = set()
        todo = [node for node in nodes if node in self._repeated]
        while todo:
            if (node := todo.pop()) not in found:
                found.add(node)
                todo += node.all_input_nodes
                todo += [user for user in node.users if user in self._repeated and _is_in_place(user)]
        return found


def _is_random(node: fx.Node) -> bool:
    """Return whether a call draws random numbers."""
    name = _name(node)
    packet = getattr(torch.ops.aten, name, None)
    overloads = () if packet is None else map(partial(getattr, packet), packet.overloads())
    return "dropout" in name or any(torch.Tag.nondeterministic_seeded in each.tags for each in overloads)


def _is_in_place(node: fx.Node) -> bool:
    """Return whether a call changes a tensor, by the names that torch gives such functions."""
    return _name(node).endswith("_") and not _name(node).endswith("__")


def _name(node: fx.Node) -> str:
    """Return the name of the function or method that a node calls."""
    return str(getattr(node.target, "__name__", node.target))


def _mapped(output: fx.Node, new: dict[fx.Node, fx.Node]) -> fx.node.Argument:
    return fx.map_arg(output.args[0], new.__getitem__)


def _check_output(result: object) -> None:
    values = result if isinstance(result, list | tuple) else [result]
    if not values or not all(isinstance(value, fx.Node) for value in values):
        kind = "dict" if isinstance(result, dict) else type(result).__name__
        raise UsageError(
            f"fd.pipeline: the model returns a {kind}, and a pipeline needs a tensor or a tuple of tensors; return the "
            "tensors that loss_fn uses."
        )
