"""``fd.load_weights``: load the parameters and buffers of a model from files of safetensors."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from farandole.exceptions import UsageError
from farandole.ranks.state.parts import unwrapped
from farandole.ranks.state.shards import is_shard, is_sharded, is_staged
from farandole.ranks.training.mesh.deferred import LaterValues, load_later
from farandole.ranks.training.pipeline.model import Pipeline
from farandole.ranks.world import collectives
from farandole.ranks.world.agreement import agreed
from farandole.reading import check_parents, parse_json, reason

SINGLE = "model.safetensors"
INDEX = f"{SINGLE}.index.json"
"""The names of these files in a folder, as the library transformers writes them. The index names several files."""
MOST_NAMES = 3
"""Number of tensors that a message names."""


def load_weights(model: nn.Module, path: str | Path, *, strict: bool = True) -> tuple[list[str], list[str]]:
    """Load the parameters and buffers of a model from safetensors, also into a model that a mesh or a pipeline divides.

    Each rank reads only its parts of the tensors, which get the dtypes of the model. If a mesh or a pipeline divides
    the model, all ranks must call this together, after :func:`farandole.prepare`. A model that was made with
    :func:`farandole.deferred` can also be loaded before: it then gets the values together with its memory.

    Args:
        model (torch.nn.Module): the model, or what :func:`farandole.prepare` returned for it.
        path (str or Path): a file such as ``model.safetensors``, or the index of several files,
            ``model.safetensors.index.json``, or the folder of either of them.
        strict (bool): whether the files must have all tensors of the model and no others. A tensor that the model has
            by several names needs only one of them.

    Returns:
        tuple: the names of the model's tensors that the files lack, and the names of the files' tensors that the model
        lacks, two lists as from ``safetensors.torch.load_model``. Both are empty if ``strict``. With a pipeline, the
        first list has only tensors of this rank's stage.

    Raises:
        UsageError: a file cannot be read, or a tensor is missing or unexpected or has another shape. If a mesh or a
            pipeline divides the model, or if it has no memory yet, all ranks raise it. The model is then unchanged.

    Source: https://huggingface.co/docs/safetensors/index#format
    """
    own = unwrapped(model)
    if not isinstance(own, nn.Module):
        raise UsageError(f"fd.load_weights loads into a torch.nn.Module, not a {type(model).__name__}.")
    source, everywhere = Path(path).expanduser(), _names_on_all_ranks(own)
    with ExitStack() as files:

        def match() -> _Matched:
            return _matched(own, source, _opened(source, files), everywhere, strict=strict)

        if any(tensor.is_meta for tensor in (*own.parameters(), *own.buffers())):
            found = agreed(match, UsageError)
            load_later(own, LaterValues(found.names, partial(_load, source.absolute())))
        elif not is_sharded(own):  # which one rank may load alone
            found = match()
            found.copy()
        else:
            found = agreed(match, UsageError)
            agreed(found.copy)
    return found.missing, found.unexpected


class _Matched:
    """Tensors of a model, each with the file that has its values, and the names that only one side has.

    Args:
        targets: the tensors that this rank has, by name.
        stored: the files, by the names of their tensors.
        everywhere: the names of the tensors that the ranks have together.
        shared: the names of each parameter that several ranks have.
    """

    def __init__(
        self,
        targets: dict[str, torch.Tensor],
        stored: dict[str, Any],
        everywhere: set[str],
        shared: Iterable[Collection[str]],
    ) -> None:
        others = {name: names for names in shared for name in names}
        found = {name: next((one for one in (name, *others.get(name, ())) if one in stored), None) for name in targets}
        self.pairs = [(target, stored[one], one) for name, target in targets.items() if (one := found[name])]
        loaded = {id(target): one for target, _, one in self.pairs}
        self.names = {name: loaded[id(target)] for name, target in targets.items() if id(target) in loaded}
        """The names of all loaded tensors in the model, each with the name in the files."""
        self.missing = [name for name in targets if name not in self.names]
        self.unexpected = [name for name in stored if name not in everywhere]

    def copy(self) -> None:
        """Copy the stored values into the model."""
        for target, file, name in self.pairs:
            _copy(target, file, name)


def _load(source: Path, model: nn.Module, names: Mapping[str, str]) -> None:
    """Load tensors of these names in a model, each by its name in the files. All ranks must call this together."""
    with ExitStack() as files:

        def copy() -> None:
            stored = _opened(source, files)
            for name, target in model.state_dict(keep_vars=True).items():
                if name in names:
                    _copy(target, stored[names[name]], names[name])

        agreed(copy, UsageError)


def _names_on_all_ranks(model: nn.Module) -> set[str]:
    """Return the names of the tensors that the ranks have together. With a pipeline, each rank has others."""
    own = set(_tensors(model))
    if not is_staged(model):
        return own
    return set().union(*map(pickle.loads, collectives.gather_bytes(pickle.dumps(own))))


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    # With `keep_vars`, a parameter that the model has by several names is one object.
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _matched(model: nn.Module, source: Path, stored: dict[str, Any], everywhere: set[str], *, strict: bool) -> _Matched:
    targets = _tensors(model)
    found = _Matched(targets, stored, everywhere, model.shared if isinstance(model, Pipeline) else ())
    if strict and (found.missing or found.unexpected):
        faults = [f"has no {_listed(found.missing)}"] if found.missing else []
        faults += [f"has {_listed(found.unexpected)}, and the model has not"] if found.unexpected else []
        raise UsageError(
            f"fd.load_weights: {source} {', and '.join(faults)}; give the file of this model, or strict=False to load "
            "what both have."
        )
    for target, file, name in found.pairs:
        if (shape := list(file.get_slice(name).get_shape())) != list(target.shape):
            raise UsageError(
                f"fd.load_weights: {name!r} has the shape {shape} in {source}, and {list(target.shape)} in the model; "
                "create the model with the sizes of the file."
            )
    return found


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} others" if len(names) > MOST_NAMES else ""
    return ", ".join(map(repr, names[:MOST_NAMES])) + more


def _opened(source: Path, files: ExitStack) -> dict[str, Any]:
    """Return the open file of each tensor, by the tensor's name."""
    found: dict[str, Any] = {}
    for path in _paths(source):
        try:
            file = files.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as exc:
            raise UsageError(
                f"fd.load_weights: {path} cannot be read: {exc}; give the path of a file of safetensors, or of a "
                f"folder with {SINGLE} or {INDEX}."
            ) from exc
        found |= dict.fromkeys(file.keys(), file)
    return found


def _paths(source: Path) -> Iterable[Path]:
    """Return the paths of the files that have tensors."""
    if source.is_dir():
        inside = [source / name for name in (INDEX, SINGLE) if (source / name).is_file()]
        if not inside:
            raise UsageError(f"fd.load_weights: {source} has neither {SINGLE} nor {INDEX}; give the path of the file.")
        source = inside[0]
    if source.suffix != ".json":
        return [source]
    try:
        names = set(parse_json(source.read_bytes(), repr(source.name))["weight_map"].values())
        for name in names:
            check_parents(source.parent, name)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as exc:
        raise UsageError(
            f"fd.load_weights: {source} is not the index of files of safetensors: {reason(exc)}; give the path of one."
        ) from exc
    return [source.parent / name for name in sorted(names)]


def _copy(target: torch.Tensor, file: Any, name: str) -> None:
    """Copy this rank's part of a stored tensor into ``target``."""
    with torch.no_grad():
        if not is_shard(target):
            target.copy_(file.get_tensor(name))
            return
        [chunk] = target.__create_chunk_list__()  # type: ignore[no-untyped-call]
        local = target.to_local()
        if local.numel():
            ranges = zip(chunk.offsets, chunk.sizes, strict=True)
            local.copy_(file.get_slice(name)[tuple(slice(begin, begin + size) for begin, size in ranges)])
