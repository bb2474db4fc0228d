"""``fd.save_model``: save a trained model in the model store."""

from __future__ import annotations

import copy
import importlib.metadata
import json
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.exceptions import RunUnreadableError, UsageError
from farandole.models.model import EXAMPLE_FILE, WEIGHTS_FILE, ModelInfo, checked_labels, checked_metrics, commit_of
from farandole.models.names import parse_name
from farandole.models.store import ModelStore
from farandole.ranks import context, run
from farandole.ranks.metrics import reporter
from farandole.runs.folder import stored_info
from farandole.runs.store import git_state
from farandole.sizes import size_text

if TYPE_CHECKING:
    import torch
    from torch import nn

    from farandole.ranks.models.export import Exported

PACKAGES = ("torch", "farandole", "numpy")


def save_model(
    model: nn.Module,
    name: str,
    *,
    example: Any = None,
    metrics: Mapping[str, float] | None = None,
    data: str = "",
    labels: Sequence[str] = (),
    onnx: bool = False,
) -> str | None:
    """Save a model as a new version in the model store of this rank's user.

    All ranks may call this function. Only rank 0 saves its model, in evaluation mode, and the others return at once.

    Args:
        model: the model, or what ``fd.prepare`` returned for it. It does not change.
        name: the name of the model, such as ``iris``, or ``vision/iris`` in the folder of the group ``vision``.
        example: an input with the batch as its first dimension: a tensor, a tuple of tensors for several positional
            arguments, or a dict of tensors for named ones. It is needed for an endpoint. Without it, only the
            parameters are saved. The size of the batch can vary later, unless rows of an output depend on other rows
            of the input, or the batch is not the first dimension of each output.
        metrics: numbers that describe how good the model is, by name.
        data: a digest or a version of the data, or another text about it.
        labels: the names of the classes, in the order of the numbers that the model returns for them. Outputs for
            records of streams contain the name of the class.
        onnx: whether to export the model to ONNX, too. An endpoint then needs a smaller image, without torch.

    Returns:
        str: the name and the version, such as ``iris:3``, or None on other ranks than rank 0.

    Raises:
        UsageError: the name, the example, a metric or a label is not valid.
        ModelError: the model cannot be exported, or the version cannot be written. Nothing is stored.
    """
    # All ranks check the arguments, so that all of them fail.
    ModelStore().check_group(parse_name(name))
    _refuse_shards(model)
    numbers, classes = checked_metrics(metrics or {}), checked_labels(labels)
    if context.rank() != 0:
        return None
    return save(
        model,
        name,
        run_id=reporter.current().run,
        git=_commit(),
        example=example,
        metrics=numbers,
        data=data,
        labels=classes,
        onnx=onnx,
    )


def _refuse_shards(model: Any) -> None:
    """Raise UsageError if no rank has the whole model."""
    # torch takes a second to import.
    from farandole.ranks.state.shards import is_sharded

    if is_sharded(model):
        raise UsageError(
            "fd.save_model: the model is divided by a mesh or a pipeline, and no rank has the whole of it; write a "
            'checkpoint with fd.checkpoint, and then the model with run.save_full("model.safetensors") in the notebook.'
        )


def save(
    model: nn.Module,
    name: str,
    *,
    run_id: str,
    git: str,
    example: Any,
    metrics: Mapping[str, float],
    data: str,
    labels: Sequence[str] = (),
    onnx: bool,
) -> str:
    """Save a model of this rank as a version that the run ``run_id`` has made. See `save_model`."""
    parsed, store = parse_name(name), ModelStore()
    store.check_group(parsed)
    own = _copy(model)
    exported = None if example is None else _exported(own, example, onnx=onnx)
    info = ModelInfo(
        name=parsed,
        version=1,
        folder=Path(),
        created=time.time(),
        run=run_id,
        git=git,
        data=str(data),
        metrics=checked_metrics(metrics),
        labels=checked_labels(labels),
        inputs=exported.inputs if exported else (),
        outputs=exported.outputs if exported else (),
        versions=_versions(),
    )

    def write(folder: Path) -> ModelInfo:
        _write_weights(own, folder)
        if exported:
            exported.write(folder)
            (folder / EXAMPLE_FILE).write_text(json.dumps(exported.example), encoding="utf-8")
        return info

    saved = store.save(parsed, write)
    run.notice(f"saved the model {saved} ({size_text(saved.size)}) in {saved.folder}")
    return str(saved)


def _copy(model: nn.Module) -> nn.Module:
    """Return a copy of the model itself, without wrappers, on the CPU and in evaluation mode."""
    from torch import nn
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    from farandole.ranks.training.pipeline.model import Pipeline

    if isinstance(model, DistributedDataParallel | DataParallel | Pipeline):
        model = model.module
    if not isinstance(model, nn.Module):
        raise UsageError(f"fd.save_model saves a torch.nn.Module, not a {type(model).__name__}")
    # Copies of the parameters on a GPU could exhaust its memory, so `deepcopy` finds copies on the CPU in its memo.
    memo = {id(tensor): _on_cpu(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo).cpu().eval()


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    from torch import nn

    copied = tensor.detach().to("cpu", copy=True)
    return type(tensor)(copied, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copied


def _exported(model: nn.Module, example: Any, *, onnx: bool) -> Exported:
    # torch.export takes a second to import.
    from farandole.ranks.models.export import export

    return export(model, example, onnx=onnx)


def _write_weights(model: nn.Module, folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Parameters that share memory are saved separately, because safetensors cannot store what they share.
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}
    try:
        save_file(tensors, folder / WEIGHTS_FILE)
    except SafetensorError as exc:
        # It is no OSError, even if the disk is full.
        raise OSError(str(exc)) from exc


def _commit() -> str:
    """Return the commit at the start of this run or, outside a run, the commit of the working folder."""
    folder = run.current().folder
    if folder is None:
        return commit_of(git_state(Path.cwd()))
    with suppress(RunUnreadableError):
        return commit_of(stored_info(folder).git)
    return ""


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
