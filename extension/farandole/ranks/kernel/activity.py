"""Describes what the main thread of a rank is doing, for a driver that asks while a cell is running.

The description comes from the stack of the thread, so it costs nothing until the driver asks. A call in C has no frame.
It is named by the expression that the innermost Python frame is evaluating.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from IPython.core.getipython import get_ipython

from farandole.ranks import context

PREFIXES = {
    "torch.distributed.distributed_c10d": "dist",
    "horovod.torch.mpi_ops": "hvd",
    "horovod.torch.functions": "hvd",
    "horovod.common.basics": "hvd",
}
"""The modules that define collectives, and the names by which users import them."""
COMMUNICATION = (
    *("torch.distributed.distributed_c10d", "torch.distributed.utils", "torch.distributed._functional_collectives"),
    *("torch.nn.parallel.distributed", "horovod.", "farandole.ranks.training.sync.exchange"),
)
"""Prefixes of the modules whose functions wait for other ranks in C++."""
BACKWARD = ("torch.autograd.graph", "_engine_run_backward")
"""The frame in which DistributedDataParallel averages gradients in C++. Ranks that compute gradients are there too."""
HIDDEN = {"torch.autograd.graph": "backward", "torch.nn.parallel.distributed": "DistributedDataParallel"}
"""The names of waits in functions that are not public, if a library has called them and not the user."""
LEGITIMATE = {"hvd.join"}
"""Calls that are made to wait for ranks that do something else."""
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (sysconfig.get_path("stdlib"), Path(__file__).parents[2]))
MOST_CHARACTERS = 60


def of_main_thread() -> dict[str, Any]:
    """Return what the main thread of this process is doing.

    - ``call``: the collective in which it may be waiting for other ranks, or an empty string.
    - ``place``: the cell and line, or the file and line, of the innermost frame of the user's code.
    - ``doing``: the call that this line is making.
    - ``mark``: a value that differs between two collectives, even if both are the same call.
    - ``cpu``: how many seconds the thread has computed. It shows whether a thread waits in a backward pass, and is 0
      elsewhere.
    - ``outside``: whether the rank is not in the world of an elastic run yet.
    """
    thread = threading.main_thread().ident
    assert thread is not None
    frames = _stack(sys._current_frames().get(thread))
    depth = next((depth for depth, frame in enumerate(frames) if _is_users(frame)), len(frames))
    inner, user = frames[:depth], frames[depth] if depth < len(frames) else None
    doing = _expression(user) if user is not None else ""
    return {
        "call": _collective(inner, doing),
        "place": _place(user) if user is not None else "",
        "doing": doing,
        "mark": _mark(frames),
        "cpu": time.clock_gettime(time.pthread_getcpuclockid(thread)) if inner and _averages(inner[0]) else 0.0,
        "outside": context.outside(),
    }


def _stack(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a thread, innermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_users(frame: FrameType) -> bool:
    """Return whether a frame executes a cell or a file of the user, and not a library."""
    name = frame.f_code.co_filename
    if _cell(name):
        return True
    parts = Path(name).parts
    return not (name.startswith(("<", *LIBRARIES)) or "site-packages" in parts or "dist-packages" in parts)


def _cell(filename: str) -> str:
    """Return the name of the cell that was compiled under a filename, such as ``cell 4``, or an empty string."""
    shell = get_ipython()
    name = shell.compile.format_code_name(filename) if shell is not None else None
    return f"cell {name[1].removeprefix('In[').removesuffix(']')}" if name is not None else ""


def _place(frame: FrameType) -> str:
    filename = frame.f_code.co_filename
    return f"{_cell(filename) or Path(filename).name}, line {frame.f_lineno}"


def _expression(frame: FrameType) -> str:
    """Return the function that a frame is calling, as the source names it, or the source of another expression."""
    source = _source(frame)
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError:  # a statement, such as an import
        text = source
    else:
        text = ast.unparse(tree.func if isinstance(tree, ast.Call) else tree)
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}..."


def _source(frame: FrameType) -> str:
    """Return the source of what a frame is executing, or an empty string if there is no source."""
    code = frame.f_code
    start, end, left, right = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
    if start is None or end is None:
        return ""
    lines = [line.encode() for line in linecache.getlines(code.co_filename)[start - 1 : end]]
    if lines and left is not None and right is not None:  # columns count the bytes of UTF-8
        lines[-1] = lines[-1][:right]
        lines[0] = lines[0][left:]
    return b"".join(lines).decode(errors="replace").strip()


def _collective(inner: Sequence[FrameType], doing: str) -> str:
    """Return the name of the collective in which a thread may be waiting, as users know it.

    ``inner`` contains the frames inside the innermost frame of the user's code, innermost first.
    """
    if not inner:
        return doing if _waits_for_work(doing) else ""
    module = _module(inner[0])
    if not module.startswith(COMMUNICATION) and not _averages(inner[0]):
        return ""
    names = filter(None, (_public_name(frame, doing) for frame in reversed(inner)))
    name = next(names, None) or (
        doing if _module(inner[-1]).startswith("torch.") else HIDDEN.get(module, "a collective")
    )
    return "" if name in LEGITIMATE else name


def _averages(frame: FrameType) -> bool:
    """Return whether a thread is in a backward pass in which DistributedDataParallel may be averaging gradients."""
    return (_module(frame), frame.f_code.co_name) == BACKWARD and bool(_sequence_numbers())


def _public_name(frame: FrameType, doing: str) -> str:
    module, function = _module(frame), frame.f_code.co_name
    if module in PREFIXES and not function.startswith("_"):
        return f"{PREFIXES[module]}.{function}"
    # Users do not know which collectives these make for them.
    return doing if module.startswith(("farandole.", "horovod.")) else ""


def _waits_for_work(doing: str) -> bool:
    """Return whether the user's code calls a method ``wait`` in C, which asynchronous collectives of torch have.

    The object is not looked up, because on Python 3.12 and earlier `frame.f_locals` keeps all local variables alive
    until the function returns, also large tensors that the function deletes.
    """
    return doing.endswith(".wait") and bool(_sequence_numbers())


def _mark(frames: Sequence[FrameType]) -> str:
    handle = frames[0].f_locals.get("handle") if frames and _module(frames[0]) == "horovod.torch.mpi_ops" else None
    return f"{_sequence_numbers()} {handle}"


def _sequence_numbers() -> list[int]:
    """Return how many collectives each process group of `torch.distributed` has begun."""
    if "torch.distributed.distributed_c10d" not in sys.modules:
        return []
    from torch.distributed.distributed_c10d import _world

    # The number of a group itself would count only the collectives of the group's default backend.
    groups = list(_world.pg_map)
    backends: list[Any] = [group._get_backend(device) for group in groups for device in group._device_types]
    return [backend._get_sequence_number_for_group() for backend in backends]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
