"""Writes and reads checkpoints of a state of which each rank has a part. Each rank writes and reads its own part.

With a mesh, the ranks have parts of the same tensors. With a pipeline, they have different tensors, so the checkpoint
has the outline of each rank.
"""

from __future__ import annotations

import errno
import pickle
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.checkpoints import files
from farandole.ranks.checkpoints.files import Content
from farandole.ranks.state.nested import Place, join, split
from farandole.ranks.state.parts import check_fits, unwrapped
from farandole.ranks.state.shards import is_shard, is_sharded
from farandole.ranks.state.state import State
from farandole.ranks.training.shard import BatchPlace, place_in_world
from farandole.ranks.world import collectives, world
from farandole.ranks.world.agreement import agreed
from farandole.runs.checkpoints.intact import DamagedError, described
from farandole.runs.checkpoints.trust import UntrustedError

NOT_SHARED = "the ranks do not share this folder; pass the `folder` of a shared file system"
STAGES = "stages"
"""The key of the outlines of a pipeline's parts, ordered by rank, in place of ``parts``."""


class Background:
    """A group of all ranks for the collectives of background threads, which run one after another.

    All ranks must start the same threads in the same order.
    """

    def __init__(self) -> None:
        with world.current().connecting():
            self.group = dist.new_group(backend="gloo")
        self._last: threading.Thread | None = None

    def start(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Do some work in a new thread, after that of all earlier threads."""
        before = self._last

        def in_turn() -> None:
            if before is not None:
                before.join()
            work()

        self._last = threading.Thread(target=in_turn, name=name)
        self._last.start()
        return self._last


_backgrounds: dict[int, Background] = {}
"""That of the current world. A cell that runs again does not connect the ranks again."""


def background() -> Background:
    """Return the `Background` of the current world. All ranks must call this together."""
    key = world.current().times_left
    if key not in _backgrounds:
        _backgrounds.clear()
        _backgrounds[key] = Background()
    return _backgrounds[key]


def write(folder: Path, content: Content, group: Any, *, staged: bool, before: Callable[[], None]) -> None:
    """Write a checkpoint into ``folder``. All ranks of ``group`` call this, and rank 0 calls ``before`` first.

    Args:
        folder: the folder of checkpoints.
        content: this rank's content.
        group: the group of all ranks.
        staged: whether the ranks have different tensors, because of a pipeline.
        before: what rank 0 does before it writes.

    Raises:
        OSError: a rank cannot write, on all ranks. Partial files are removed.
        ConnectionError: the ranks have lost their connections.
    """
    new = files.temporary(folder, content.step)

    def begin() -> None:
        before()
        files.begin(folder, content.step)

    try:
        _write(new, content, group, staged=staged, begin=begin)
    except (OSError, RuntimeError, ValueError) as exc:
        if context.rank() == 0:
            shutil.rmtree(new, ignore_errors=True)
        if isinstance(exc, OSError):
            raise
        # Gloo raises RuntimeError if a connection ends, and torch ValueError if the world was left before.
        raise ConnectionResetError(errno.ECONNRESET, "the ranks have lost their connections") from exc


def _write(new: Path, content: Content, group: Any, *, staged: bool, begin: Callable[[], None]) -> None:
    tensors: dict[str, torch.Tensor] = {}
    outline = split(content.state, tensors, f"{STAGES}/{context.rank()}" if staged else "")
    if staged:
        outline[STAGES] = _outlines(outline.pop("parts"), group)
    elif context.rank() != 0:
        # Of tensors that are whole on all ranks, those of rank 0 count.
        tensors = {key: tensor for key, tensor in tensors.items() if is_shard(tensor)}

    def begin_files() -> None:
        begin()
        files.write_outline(new, content, outline)

    def find() -> None:
        if not new.is_dir():
            raise OSError(errno.ENOENT, NOT_SHARED)

    def describe() -> dict[str, Any]:
        return {path.name: described(path) for path in new.glob(f"__{context.rank()}_*")}

    _together(begin_files if context.rank() == 0 else None, group)
    _together(find, group)
    files.store(new, tensors, group)
    found = {name: one for own in _together(describe, group) for name, one in own.items()}
    if context.rank() == 0:
        if not all((new / name).is_file() for name in found):
            raise OSError(errno.ENOENT, NOT_SHARED)
        others = {path.name: described(path) for path in new.iterdir() if path.name not in found}
        files.complete(new, content, found | others)


def read_newest(find: Callable[[], list[Path]], state: State) -> Content | None:
    """Return the first intact checkpoint that ``find`` returns on rank 0, with this rank's parts of it; see `read`.

    All ranks must call this together. Each of them verifies a share of the files. Rank 0 shows the user a notice about
    each damaged checkpoint.

    Raises:
        UsageError: other users may have written the checkpoint, or it is that of another model or pipeline.
    """
    paths = find() if context.rank() == 0 else []
    for path in pickle.loads(collectives.broadcast_bytes(pickle.dumps(paths), root=0)):
        outline = partial(files.read_outline, path, share=context.rank(), shares=context.size())
        try:
            content = agreed(outline, UntrustedError, DamagedError)
            check_stages(stages_in(content), state)
            return agreed(partial(read, path, content, state), UsageError, DamagedError)
        except UntrustedError as exc:
            raise UsageError(str(exc)) from exc
        except DamagedError as exc:
            if context.rank() == 0:
                files.notice_damage(path, exc)
    return None


def place(state: State) -> BatchPlace:
    """Return this rank's share of each batch.

    Ranks along some dimensions of a mesh get the same share, and need the same random numbers.
    """
    for part in map(unwrapped, state.parts.values()):
        if isinstance(part, torch.nn.Module) and is_sharded(part):
            # Loaded already, if a model is sharded. It takes a second to import.
            from farandole.ranks.training.mesh import sharding

            return sharding.place(part)
    return place_in_world()


def _outlines(own: Any, group: Any) -> list[Any]:
    """Return the outlines of all ranks, ordered by rank."""
    # What cannot be pickled fails on all ranks, as it does when one rank writes alone.
    return [pickle.loads(outline) for outline in _together(lambda: cloudpickle.dumps(own), group)]


def stages_in(content: Content) -> int:
    """Return the number of ranks of the pipeline that wrote a checkpoint, or 0 if none did."""
    return len(content.state.get(STAGES, ()))


def check_stages(found: int, state: State) -> None:
    """Raise UsageError if the checkpoint of a pipeline with ``found`` ranks cannot be loaded into ``state``."""
    own = context.size() if state.is_staged else 0
    if found != own:
        raise UsageError(
            f"fd.checkpoint: {_pipeline(found)} wrote the checkpoint, and it would be loaded into {_pipeline(own)}; "
            "continue with the same fd.pipeline and the same number of ranks."
        )


def _pipeline(ranks: int) -> str:
    return f"a pipeline of {ranks} ranks" if ranks else "a run without a pipeline"


def read(path: Path, content: Content, state: State) -> Content:
    """Return the content of a checkpoint with this rank's parts of its tensors, as ``state`` has them now.

    The mesh may have another shape than the one that wrote the checkpoint. The stages of a pipeline must be the same.

    Args:
        path: the checkpoint.
        content: what `files.read_outline` has returned for it.
        state: the state that it will be loaded into.

    Raises:
        DamagedError: the tensors cannot be read.
        UsageError: the checkpoint has another model or other stages.
    """
    tensors: dict[str, torch.Tensor] = {}
    outline = dict(content.state)
    if stages := outline.pop(STAGES, None):
        outline["parts"] = stages[context.rank()]
        _check_same_stages(outline["parts"], state)
    # Checked before reading, because all ranks would read tensors that do not fit as a whole.
    check_fits(state.parts, outline["parts"])
    _add_parts(outline["parts"], state, tensors)
    whole = join(outline, tensors)
    files.restore(path, tensors)
    return replace(content, state=whole)


def _check_same_stages(stored: dict[str, Any], state: State) -> None:
    """Check that the stage of this rank has the parameters and buffers that are stored. Raise UsageError otherwise."""
    same = all(
        _shapes(stored.get(name, {})) == _shapes(part.state_dict())
        for name, part in state.parts.items()
        if isinstance(part, torch.nn.Module)
    )
    if not same:
        raise UsageError(
            "fd.checkpoint: a pipeline with other stages wrote the checkpoint; continue with the same split and model."
        )


def _shapes(state: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in state.items()}


def _add_parts(outline: dict[str, Any], state: State, tensors: dict[str, torch.Tensor]) -> None:
    """Add an empty tensor for each place of a tensor that a mesh shards, or of an optimizer's state of one."""
    for name, wrapped in state.parts.items():
        part = unwrapped(wrapped)
        if isinstance(part, torch.optim.Optimizer):
            # A new optimizer has no state yet.
            parameters = [parameter for group in part.param_groups for parameter in group["params"]]
            for index, values in outline[name]["state"].items():
                _add(values, dict.fromkeys(values, parameters[index]), tensors)
        else:
            _add(outline[name], part.state_dict(), tensors)


def _add(stored: Any, own: Any, tensors: dict[str, torch.Tensor]) -> None:
    if isinstance(stored, dict) and isinstance(own, dict):
        for name, value in stored.items():
            _add(value, own.get(name), tensors)
    elif type(stored) in {list, tuple} and type(own) is type(stored):
        for value, like in zip(stored, own, strict=False):
            _add(value, like, tensors)
    elif isinstance(stored, Place) and is_shard(own) and stored.shape == own.shape:
        tensors[stored.key] = torch.empty_like(own, dtype=stored.dtype, requires_grad=False)


def _together(work: Callable[[], Any] | None, group: Any) -> list[Any]:
    """Do some work and return the results of all ranks. Raises OSError on all ranks if one of them fails."""
    own: Any = None
    try:
        own = work() if work is not None else None
    except OSError as exc:
        own = OSError(exc.errno, exc.strerror or str(exc))
    except Exception as exc:  # noqa: BLE001 - the other ranks must not wait for this one
        own = OSError(0, f"{type(exc).__name__}: {exc}")
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, own, group=group)
    for result in found:
        if isinstance(result, OSError):
            raise result
    return found
