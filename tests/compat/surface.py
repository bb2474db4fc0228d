"""Describes the public interface of a checkout as data: public names, magics, settings and make targets.

`python -m tests.compat.surface` prints the description of the current checkout as JSON. The module uses only public
names, so it also runs in checkouts of old commits.
"""

from __future__ import annotations

import inspect
import json
import re
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import farandole
from farandole import exceptions
from farandole.notebook.magics import ACTIONS, FarandoleMagics

MAGICS = ("cluster_magic", "distributed", "distributed_train", "push", "pull", "runs")
RUN = [
    "id",
    "name",
    "folder",
    "status",
    "error",
    "started",
    "ended",
    "size",
    "backend",
    "notices",
    "resumed_from",
    "checkpoints",
    "results",
    "result",
    "wait",
    "dataframe",
    "listen",
]
STATE = ["commits", "parts", "last", "commit", "restore", "on_commit", "state_dict", "load_state_dict", "sync"]
CHECKPOINTS = ["folder", "resumed", "save", "wait", "load"]
CHECKPOINT = ["step", "path", "time", "bytes"]
"""``RUN``, ``STATE``, ``CHECKPOINTS`` and this list name the public members of classes that public functions return."""
SETTING = re.compile(r"\b(?:FARANDOLE|COMPOSE)_[A-Z][A-Z_]*[A-Z]\b")
SETTING_FILES = (".env.example", "docker-compose.yml", "hub/kubernetes/site.example/settings.env.example")
"""Files that list the settings for operators."""


def surface() -> dict[str, Any]:
    """Describe the public names, the exceptions and the magics of the imported package."""
    run = _returned(farandole.Cluster.train)
    returned = {
        "Run": (run, RUN),
        "Checkpoint": (get_args(_returned(run.checkpoints.fget))[0], CHECKPOINT),
        "State": (_returned(farandole.state), STATE),
        "Checkpoints": (_returned(farandole.checkpoint), CHECKPOINTS),
    }
    return {
        "names": {name: _described(getattr(farandole, name)) for name in sorted(farandole.__all__)},
        "returned": {name: _members(kind, members) for name, (kind, members) in returned.items()},
        "exceptions": _exceptions(),
        "magics": {name: _options(getattr(FarandoleMagics, name).parser) for name in MAGICS},
        "actions": list(ACTIONS),
    }


def settings(root: Path) -> list[str]:
    """Return the names of all settings in the `SETTING_FILES` of a checkout."""
    return sorted({name for file in SETTING_FILES for name in SETTING.findall((root / file).read_text("utf-8"))})


def make_targets(root: Path) -> list[str]:
    """Return the names of the make targets that `make help` shows."""
    return sorted(re.findall(r"^([a-z-]+):.*## ", (root / "Makefile").read_text("utf-8"), re.MULTILINE))


def _described(value: Any) -> Any:
    if inspect.ismodule(value):
        return {name: _described(getattr(value, name)) for name in value.__all__}
    if not inspect.isclass(value):
        return _parameters(value)
    names = (
        [one.name for one in fields(value)] if is_dataclass(value) else [name for name in vars(value) if name[0] != "_"]
    )
    return {"__init__": _parameters(value), **_members(value, names)}


def _members(kind: type, names: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of each method, and None for each other attribute. Names that do not exist are omitted."""
    made = {*re.findall(r"self\.([a-z_]+)\b", inspect.getsource(kind)), *inspect.get_annotations(kind)}
    found = {name: inspect.getattr_static(kind, name, None) for name in names if hasattr(kind, name) or name in made}
    return {
        name: _parameters(getattr(kind, name))
        if callable(value) or isinstance(value, classmethod | staticmethod)
        else None
        for name, value in found.items()
    }


def _parameters(called: Callable[..., Any]) -> list[list[str]]:
    """Return the name, kind and default of each parameter."""
    return [
        [one.name, one.kind.name, "" if one.default is one.empty else repr(one.default)]
        for one in inspect.signature(called).parameters.values()
    ]


def _returned(function: Any) -> Any:
    """Return the class in a function's return annotation."""
    return eval(function.__annotations__["return"], function.__globals__)


def _exceptions() -> dict[str, list[str]]:
    kinds = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass) if issubclass(kind, Exception)]
    return {kind.__name__: [base.__name__ for base in kind.__mro__[1:-2]] for kind in kinds}


def _options(parser: ArgumentParser) -> dict[str, dict[str, str]]:
    """Return the arguments of a magic by the names that users type."""
    return {
        " ".join(action.option_strings) or action.dest: {
            "nargs": repr(action.nargs),
            "default": repr(action.default),
            "type": getattr(action.type, "__name__", ""),
        }
        for action in parser._actions
        if "--help" not in action.option_strings
    }


if __name__ == "__main__":
    here = Path.cwd()
    print(json.dumps({**surface(), "settings": settings(here), "make": make_targets(here)}, indent=1))
