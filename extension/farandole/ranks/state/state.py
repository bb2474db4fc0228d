"""``fd.state``: all that a training loop would have to start anew without, to commit, restore, share and write down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.state.nested import broadcast_state
from farandole.ranks.state.parts import is_part, named, unwrapped
from farandole.ranks.state.snapshot import Snapshot, Snapshots, copied

Hook = Callable[["State"], None]


def state(*parts: Any, **named_parts: Any) -> State:
    """Return the state of a training loop: ``state = fd.state(model, optimizer, loader, epoch=0, step=0)``.

    What has ``state_dict`` and ``load_state_dict`` is a part; positional ones are named by what they are (model,
    optimizer, loader, scheduler, scaler). Other keyword values are plain values, to be read and set as attributes:
    ``state.step += 1``. The random numbers of each rank belong to it as well.

    Raises: UsageError for two parts of one kind, or an object that is neither stateful nor plain data.
    """
    return State(*parts, **named_parts)


class State:
    """Parts and values of a training loop, and a copy of them in memory: of the last commit, or of the beginning."""

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
        """How often this state was committed, in all runs that it went through."""
        return self._commits

    @property
    def parts(self) -> Mapping[str, Any]:
        """The model, the optimizer and whatever else keeps a state, by name."""
        return self._parts

    @property
    def extras(self) -> dict[str, Any]:
        """What others keep along with the state, small plain values alike on all ranks, such as the next checkpoint."""
        return self._extras

    @property
    def last(self) -> Snapshot:
        """The copy that `restore` goes back to; hold it while another thread reads it."""
        return self._snapshots.last

    def commit(self) -> None:
        """Copy everything in memory, call it after ``optimizer.step()``; the hooks come after the copy is made."""
        self._commits += 1
        try:
            self.keep()
        except BaseException:
            self._commits -= 1
            raise
        for hook in self._hooks:
            hook(self)

    def keep(self) -> None:
        """Copy everything as `commit` does, without being one: no hook is called and none is counted."""
        self._snapshots.take(self.state_dict())

    def restore(self) -> None:
        """Go back to the last commit, or to the beginning."""
        # A copy: an optimizer goes on to use the very tensors that it is given, where they fit.
        self.load_state_dict(copied(self.last.state))

    def on_commit(self, hook: Hook) -> None:
        """Call ``hook(state)`` after each commit, in the order of these calls; what it raises ends the commit."""
        self._hooks.append(hook)

    def state_dict(self) -> dict[str, Any]:
        """Return parts, values, the number of commits and the random numbers; tensors are not copied."""
        return {
            "parts": {name: unwrapped(part).state_dict() for name, part in self._parts.items()},
            "values": dict(self._values),
            "commits": self._commits,
            "extras": dict(self._extras),
            "rng": rng.capture(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what `state_dict` returned; without ``rng`` in it the random numbers stay.

        Raises: UsageError naming parts that are in one of the two alone.
        """
        _check_parts(set(self._parts), set(state["parts"]))
        for name, part in self._parts.items():
            unwrapped(part).load_state_dict(state["parts"][name])
        self._values |= {name: _where_it_was(self._values.get(name), new) for name, new in state["values"].items()}
        self._commits = state["commits"]
        self._extras |= state["extras"]
        rng.restore(state.get("rng", {}))

    def sync(self, root: int = 0) -> None:
        """Give all ranks the state of rank ``root``, but for its random numbers; all ranks have to call it.

        What `restore` goes back to is this state, then.
        """
        own = self.state_dict()
        del own["rng"]
        found = broadcast_state(own, root)
        if context.rank() != root:
            self.load_state_dict(found)
        self.keep()

    def __getattr__(self, name: str) -> Any:
        for found in (self.__dict__.get("_values", {}), self.__dict__.get("_parts", {})):
            if name in found:
                return found[name]
        raise AttributeError(f"This state has no {name!r}; it has {_list({*self._parts, *self._values})}.")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        wanted = is_part(name, value)
        if name not in (self._parts if wanted else self._values):
            raise AttributeError(
                f"This state has no {'part' if wanted else 'value'} {name!r}; declare it where the state is made: "
                f"fd.state(..., {name}=...)."
            )
        (self._parts if wanted else self._values)[name] = value

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r:.40}" for name, value in self._values.items())
        return f"<State of {_list(self._parts)}; {values}; {self._commits} commits>"


def _check_name(name: str) -> None:
    if name.startswith("_") or hasattr(State, name):
        raise UsageError(f"fd.state: {name!r} is a name of the state's own; choose another.")


def _check_parts(own: set[str], found: set[str]) -> None:
    if missing := own - found:
        raise UsageError(f"The state to load has no {_list(missing)}; it has {_list(found)}. Leave it out of fd.state.")
    if left := found - own:
        raise UsageError(f"The state to load has {_list(left)} too; give fd.state as many parts as it was taken of.")


def _where_it_was(old: Any, new: Any) -> Any:
    # Copies and checkpoints lie on the CPU; the parts know themselves where their tensors belong.
    return new.to(old.device) if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) else new


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "nothing"
