"""``fd.state``: the state that a training loop needs to continue. It can be committed, restored, shared and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.state.nested import broadcast_state
from farandole.ranks.state.parts import check_names, is_part, listed, load, named, unwrapped
from farandole.ranks.state.shards import is_sharded, is_staged
from farandole.ranks.state.snapshot import Snapshot, Snapshots, loadable

Hook = Callable[["State"], None]


def state(*parts: Any, **named_parts: Any) -> State:
    """Return the state of a training loop, e.g. ``state = fd.state(model, optimizer, loader, epoch=0, step=0)``.

    A state consists of:

    - parts, which are objects with ``state_dict`` and ``load_state_dict``;
    - values, which are plain data, read and set as attributes, e.g. ``state.step += 1``;
    - the random number generators of each rank.

    Args:
        *parts: parts whose name follows from their type: ``model``, ``optimizer``, ``loader``, ``scheduler`` or
            ``scaler``.
        **named_parts: further parts by name, and values (numbers, text, tensors, arrays, or containers of them).

    Returns:
        State: the state. Call its ``commit()`` method after each step that should be kept.

    Raises:
        UsageError: two parts have the same name, or an argument is neither a part nor plain data.
    """
    return State(*parts, **named_parts)


class State:
    """Parts and values of a training loop, with a copy of them in memory.

    The copy contains the last commit, or the initial state if nothing has been committed.
    """

    def __init__(self, *parts: Any, **named_parts: Any) -> None:
        for name in named_parts:
            _check_name(name)
        self._parts, self._values = named(parts, named_parts)
        self._extras: dict[str, Any] = {}
        self._commits = 0
        self._hooks: list[Hook] = []
        self._snapshots = Snapshots()
        self.keep()

    @property
    def commits(self) -> int:
        """Number of commits so far, including the commits of earlier runs that this state was resumed from."""
        return self._commits

    @property
    def parts(self) -> Mapping[str, Any]:
        """The model, the optimizer and the other parts, by name."""
        return self._parts

    @property
    def is_sharded(self) -> bool:
        """Whether a mesh or a pipeline divides a part, so that no rank has the whole state."""
        return any(map(is_sharded, self._parts.values()))

    @property
    def is_staged(self) -> bool:
        """Whether a pipeline divides a part, so that the ranks have different tensors."""
        return any(map(is_staged, self._parts.values()))

    @property
    def extras(self) -> dict[str, Any]:
        """Small plain values that other modules save with the state. They are equal on all ranks."""
        return self._extras

    @property
    def last(self) -> Snapshot:
        """The copy that `restore` loads. Acquire it before another thread reads it."""
        return self._snapshots.last

    def commit(self) -> None:
        """Copy the state in memory and call the commit hooks. Call this method after ``optimizer.step()``."""
        self._commits += 1
        try:
            self.keep()
        except BaseException:
            self._commits -= 1
            raise
        for hook in self._hooks:
            hook(self)

    def keep(self) -> None:
        """Copy the state as `commit` does, without calling hooks or counting a commit."""
        self._snapshots.take(self.state_dict())

    def restore(self) -> None:
        """Restore the last commit, or the initial state if nothing has been committed."""
        self.load_state_dict(loadable(self.last.state))

    def on_commit(self, hook: Hook) -> None:
        """Call ``hook(state)`` after each commit, in order of registration. If one fails, later hooks are skipped."""
        self._hooks.append(hook)

    def state_dict(self) -> dict[str, Any]:
        """Return the parts, values, number of commits, extras and random states. Tensors are not copied."""
        return {
            "parts": {name: unwrapped(part).state_dict() for name, part in self._parts.items()},
            "values": dict(self._values),
            "commits": self._commits,
            "extras": dict(self._extras),
            "rng": rng.capture(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state from `state_dict`. If the key ``rng`` is missing, random numbers are unchanged.

        Raises:
            UsageError: the state has different parts, or is that of another model. The message names them.
        """
        check_names(set(self._parts), set(state["parts"]))
        for name, part in self._parts.items():
            load(name, part, state["parts"][name])
        self._values |= {name: _where_it_was(self._values.get(name), new) for name, new in state["values"].items()}
        self._commits = state["commits"]
        self._extras |= state["extras"]
        rng.restore(state.get("rng", {}))

    def sync(self, root: int = 0) -> None:
        """Copy the state of rank ``root``, except its random states, to all ranks. All ranks must call this method.

        Afterwards, `restore` returns to this state. Raises UsageError if a mesh or a pipeline divides the state.
        """
        if self.is_sharded:
            raise UsageError(
                "fd.state: a mesh or a pipeline divides this state, so no rank has a state that the others could copy."
            )
        own = self.state_dict()
        del own["rng"]
        found = broadcast_state(own, root)
        if context.rank() != root:
            self.load_state_dict(found)
        self.keep()

    def __getattr__(self, name: str) -> Any:
        """Return the value or the part with this name."""
        for found in (self.__dict__.get("_values", {}), self.__dict__.get("_parts", {})):
            if name in found:
                return found[name]
        raise AttributeError(f"This state has no {name!r}; it has {listed({*self._parts, *self._values})}.")

    def __setattr__(self, name: str, value: Any) -> None:
        """Replace the value or the part with this name."""
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        wanted = is_part(name, value)
        if name not in (self._parts if wanted else self._values):
            raise AttributeError(
                f"This state has no {'part' if wanted else 'value'} {name!r}; declare it when you create the state: "
                f"fd.state(..., {name}=...)."
            )
        (self._parts if wanted else self._values)[name] = value

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r:.40}" for name, value in self._values.items())
        return f"<State of {listed(self._parts)}; {values}; {self._commits} commits>"


def _check_name(name: str) -> None:
    if name.startswith("_") or hasattr(State, name):
        raise UsageError(f"fd.state: {name!r} is a reserved name; choose another.")


def _where_it_was(old: Any, new: Any) -> Any:
    # Copies and checkpoints are on the CPU. Parts move their own tensors to the right device, but values do not.
    return new.to(old.device) if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) else new
