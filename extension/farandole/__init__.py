"""Farandole runs the training code in a notebook cell on many nodes, and streams the metrics back live.

- On the ranks, and in any Python process: ``import farandole as fd``, then calls such as ``fd.report(loss=loss)``.
- In the notebook: ``%load_ext farandole``, or the `Cluster` class.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from farandole import streams as streams
    from farandole.datasets.dataset import dataset as dataset
    from farandole.driver.cluster import Cluster as Cluster
    from farandole.driver.endpoints.endpoint import Endpoint as Endpoint
    from farandole.driver.options import Elastic as Elastic
    from farandole.models.load import load_model as load_model
    from farandole.ranks.checkpoints.checkpoint import checkpoint as checkpoint
    from farandole.ranks.context import device as device
    from farandole.ranks.context import local_rank as local_rank
    from farandole.ranks.context import local_size as local_size
    from farandole.ranks.context import rank as rank
    from farandole.ranks.context import size as size
    from farandole.ranks.elastic import elastic as elastic
    from farandole.ranks.metrics.config import config as config
    from farandole.ranks.metrics.report import report as report
    from farandole.ranks.metrics.result import result as result
    from farandole.ranks.metrics.track import track as track
    from farandole.ranks.models.save import save_model as save_model
    from farandole.ranks.models.weights import load_weights as load_weights
    from farandole.ranks.state.state import state as state
    from farandole.ranks.training import sync as sync
    from farandole.ranks.training.mesh.clip import clip_grad_norm_ as clip_grad_norm_
    from farandole.ranks.training.mesh.deferred import deferred as deferred
    from farandole.ranks.training.pipeline.create import pipeline as pipeline
    from farandole.ranks.training.prepare import prepare as prepare
    from farandole.runs.store import load_run as load_run
    from farandole.runs.store import load_runs as load_runs
    from farandole.snapshots.snapshots import Snapshots as Snapshots

__version__ = "0.1.0"

_HOMES = {
    "Cluster": "farandole.driver.cluster",
    "Elastic": "farandole.driver.options",
    "Endpoint": "farandole.driver.endpoints.endpoint",
    "Snapshots": "farandole.snapshots.snapshots",
    "checkpoint": "farandole.ranks.checkpoints.checkpoint",
    "clip_grad_norm_": "farandole.ranks.training.mesh.clip",
    "config": "farandole.ranks.metrics.config",
    "dataset": "farandole.datasets.dataset",
    "deferred": "farandole.ranks.training.mesh.deferred",
    "device": "farandole.ranks.context",
    "elastic": "farandole.ranks.elastic",
    "load_model": "farandole.models.load",
    "load_run": "farandole.runs.store",
    "load_runs": "farandole.runs.store",
    "load_weights": "farandole.ranks.models.weights",
    "local_rank": "farandole.ranks.context",
    "local_size": "farandole.ranks.context",
    "pipeline": "farandole.ranks.training.pipeline.create",
    "prepare": "farandole.ranks.training.prepare",
    "rank": "farandole.ranks.context",
    "report": "farandole.ranks.metrics.report",
    "result": "farandole.ranks.metrics.result",
    "save_model": "farandole.ranks.models.save",
    "size": "farandole.ranks.context",
    "state": "farandole.ranks.state.state",
    "streams": "farandole.streams",
    "sync": "farandole.ranks.training.sync",
    "track": "farandole.ranks.metrics.track",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ranks never import the driver and the driver never imports torch.

    Raises AttributeError for any other name.
    """
    if name not in _HOMES:
        from farandole.suggestions import did_you_mean

        text = f"module 'farandole' has no attribute {name!r}.{did_you_mean(name, _HOMES)}"
        # Without the object, Python adds no suggestion of its own.
        raise AttributeError(text, name=name, obj=None)
    home = importlib.import_module(_HOMES[name])
    value = home if home.__name__.endswith(f".{name}") and not hasattr(home, name) else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics and the display for runs. IPython calls this function for ``%load_ext farandole``."""
    from farandole.notebook.data_sets import DataSetMagics
    from farandole.notebook.display import show_runs
    from farandole.notebook.help import ask_for_help
    from farandole.notebook.magics import FarandoleMagics
    from farandole.notebook.serving.magics import ServingMagics
    from farandole.notebook.snapshots.magics import SnapshotMagics

    shell.register_magics(FarandoleMagics, ServingMagics, SnapshotMagics, DataSetMagics)
    show_runs(shell)
    if ask_for_help not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(ask_for_help)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "farandole.server"}]
