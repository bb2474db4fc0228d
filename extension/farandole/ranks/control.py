"""Functions that the driver calls on a rank.

The driver evaluates them as expressions, which leave the user's namespace unchanged.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from farandole.datasets.versions import mounted
from farandole.hyperparameters import Hyperparameter
from farandole.ranks import context, run
from farandole.ranks.data import engine
from farandole.ranks.kernel import activity as activities
from farandole.ranks.kernel import departures, exits, folders, interrupts, lean, numbering, script, transfer, widgets
from farandole.ranks.metrics import reporter
from farandole.ranks.models import variables
from farandole.ranks.preflight import links
from farandole.ranks.preflight import model as models
from farandole.ranks.preflight import probe as preflight
from farandole.ranks.world import launcher, libraries, membership, process_group, world


def prepare(environment: dict[str, str]) -> None:
    """Turn this kernel into a rank by setting its environment variables and connecting it to the driver."""
    os.environ.update(environment)
    launcher.clear_arguments()
    libraries.current().watch_imports()
    libraries.current().watch_cells()
    reporter.install()
    transfer.install()
    lean.make_lean()
    numbering.install()
    interrupts.install()
    exits.install()
    widgets.install()
    departures.install(lambda: world.current().exists())


def preload(backend: str) -> dict[str, dict[str, str]]:
    """Import the backend, so that the world forms quickly. Return the versions that a run records.

    This also imports torch._dynamo, which the first optimizer step would otherwise import. An interrupt in the middle
    of that import would break the rank, because the import cannot be repeated. An import in a background thread would
    not help, because a cell that is interrupted while it waits for import locks can leave them locked forever.

    The imported modules are excluded from garbage collection, because each full collection would otherwise take about
    0.25 seconds. If a cell has already imported torch, nothing is excluded, because models in reference cycles would
    then never be freed.
    """
    is_first = backend != "none" and "torch" not in sys.modules
    if backend != "none":
        import torch._dynamo  # noqa: F401

        process_group.protect(world.torch_world().exists)
    if backend == "horovod":
        import horovod.torch  # noqa: F401
    if is_first:
        gc.freeze()
    packages = {"python": platform.python_version()}
    for package in ("torch", "horovod", "farandole", "numpy"):
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[package] = importlib.metadata.version(package)
    return {"packages": packages, "data_sets": mounted.digests()}


def form(environment: dict[str, str]) -> None:
    """Leave the current world, if any, and join the world that ``environment`` describes."""
    membership.form_world(environment)


def leave() -> None:
    """Leave the world. This unblocks a rank that is waiting in a collective."""
    membership.leave_world()


def abandon() -> None:
    """Leave a broken world, and unblock peers that are waiting for this rank."""
    membership.abandon_world()


def open_store(host: str) -> int:
    """Open the torch backend's store on this rank and return the port. An empty ``host`` means all addresses."""
    return world.open_store(host)


def begin(
    run_id: str,
    folder: str = "",
    resume: str = "",
    lr_rule: str = "",
    overrides: Mapping[str, Hyperparameter] | None = None,
) -> None:
    """Begin the run ``run_id`` in ``folder``.

    If ``resume`` is not empty, it is the folder of the run to resume from. If ``lr_rule`` is not empty, the run is
    elastic. The hyper-parameters ``overrides`` take precedence over those of the cell.
    """
    engine.current().training_begins()
    reporter.current().begin(run_id)
    run.current().begin(folder, resume, overrides)
    if lr_rule:
        membership.current().begin(lr_rule)
    # `fd.prepare` imports this module, which imports torch. If it is not imported, no model has been prepared.
    if (fit := sys.modules.get("farandole.ranks.training.mesh.fit")) is not None:
        fit.announcer().begin()


def run_script(code: str, path: str, arguments: list[str]) -> None:
    """Execute the code of the file at ``path`` with these command-line arguments."""
    script.run(code, path, arguments)


def end() -> None:
    """Call the run's exit callbacks, send the queued messages and leave the run."""
    try:
        membership.current().end()
        run.current().end(failed=exits.cell_has_failed())
    finally:
        reporter.current().end()
        engine.current().training_ends()


def mark_world_broken(interrupted: bool = False) -> None:
    """Record that the world is broken, and whether the next interrupt comes from the driver."""
    membership.current().mark_world_broken(interrupted=interrupted)


def pause_at_next_commit() -> int:
    """Make the next commit wait for `leave_at_commit`, and return the number of commits so far."""
    return membership.current().pause_at_next_commit()


def leave_at_commit(commits: int) -> None:
    """Make this rank leave its loop at the commit with this number."""
    membership.current().leave_at_commit(commits)


def join(environment: dict[str, str]) -> None:
    """Let this rank, which is waiting for a world, form the world that ``environment`` describes."""
    membership.current().form(environment)


def waits() -> bool:
    """Return whether this rank is waiting for a world. A rank that is forming a world is not waiting."""
    return membership.current().waits


def identity() -> dict[str, Any]:
    """Return this rank's number, world size, backend and process id, and whether the rank is outside the world."""
    return {
        "rank": context.rank(),
        "size": context.size(),
        "backend": context.backend(),
        "pid": os.getpid(),
        "outside": context.outside(),
    }


def activity() -> dict[str, Any]:
    """Return what the main thread of this rank is doing."""
    return activities.of_main_thread()


def describe() -> dict[str, Any]:
    """Return the resources and GPUs of this rank's machine."""
    return preflight.describe()


def clock() -> float:
    """Return this rank's clock in seconds since the epoch."""
    return time.time()


def all_reduce() -> list[list[float]]:
    """Time all-reduces of one number and of 16 MiB over the world. Return the durations in seconds, for each size."""
    return preflight.all_reduce()


def measure_model(model: str, batch: str) -> dict[str, Any]:
    """Return the size of a model of the user's namespace and the times of its steps, or an error."""
    return models.measure(model, batch)


def fit_model(model: str) -> dict[str, Any]:
    """Return how much memory the training of a model of the user's namespace needs on meshes, or an error."""
    return models.fit(model)


def predict_modes(figures: dict[str, float], overheads: list[dict[str, list[float]]]) -> list[dict[str, Any]]:
    """Return the predicted speed of training in each mode of ``fd.sync``."""
    return models.predict(figures, overheads)


def save_variable(model: str, name: str, run_id: str, example: str, options: dict[str, Any]) -> dict[str, str]:
    """Save a model of the user's namespace in the model store. Return its version, or an error."""
    return variables.save_variable(model, name, run_id, example, options)


def open_listener(host: str) -> dict[str, Any]:
    """Listen at ``host`` for a peer that measures the network. Return the port, or an error."""
    return links.open_listener(host)


def serve(seconds: float) -> dict[str, Any]:
    """Serve the peer that connects to the listener. Return the measured rate, or an error."""
    return links.serve(seconds)


def dial(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Measure the network to a listening rank. Return the latency and the rate, or an error."""
    return links.dial(host, port, seconds)


def accept(key: str, python: str) -> None:
    """Assign values that this version of Python pushed to variables in the user's namespace."""
    transfer.accept(key, python)


def accept_broadcast(key: str, python: str) -> None:
    """Receive pushed values from rank 0 over the backend and assign them to variables in the user's namespace."""
    transfer.accept_broadcast(key, python)


def give(names: list[str]) -> None:
    """Send variables of the user's namespace to the driver."""
    transfer.give(names)


def file_names(folder: str, key: str, number: int, most: int) -> list[tuple[str, int | None]]:
    """Return the names and sizes of the next files of a folder on this rank's machine."""
    return folders.names(folder, key, number, most)


def file_contents(folder: str, wanted: list[tuple[str, int, int]]) -> list[list[Any] | str]:
    """Return the sizes, the permissions and the digests of files."""
    return folders.contents(folder, wanted)


def read_pieces(folder: str, wanted: list[tuple[str, int]]) -> list[list[str] | str]:
    """Return pieces of files in base64."""
    return folders.read(folder, wanted)


def differing_pieces(folder: str, files: list[tuple[str, int, list[str], int | None]]) -> list[list[int] | str | None]:
    """Return the numbers of the pieces that files still need to have these digests, or None for complete ones."""
    return folders.differing(folder, files)


def write_pieces(
    folder: str, key: str, push: int, parts: list[tuple[str, int, int, str, int]]
) -> list[str | None] | None:
    """Write the pieces of a push of the copy ``key``. Return None if they have not arrived."""
    return folders.write(folder, key, push, parts)


def finish_files(folder: str, files: list[tuple[str, str, int, int]], complete: list[str]) -> list[str | None]:
    """Give files that were received completely their names, and remove what cut copies of ``complete`` ones left."""
    return folders.finish(folder, files, complete)


def start_data_worker(scheduler: str, security: dict[str, str], pauses: bool) -> str:
    """Start this rank's Dask worker, and return its address. If it ``pauses``, it waits during training cells."""
    return engine.current().start(scheduler, security, pauses=pauses)


def end_data_worker(scheduler: str) -> None:
    """End this rank's Dask worker, unless it serves another scheduler."""
    engine.current().end(scheduler)


def set_data_pauses(pauses: bool) -> None:
    """Set whether this rank's Dask worker waits during training cells."""
    engine.current().set_pauses(pauses=pauses)
