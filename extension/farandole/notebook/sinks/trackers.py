"""Makes the experiment trackers that the options of `%%distributed_train` name."""

from __future__ import annotations

import argparse

from farandole.notebook.sinks.delivery import Tracker
from farandole.notebook.sinks.mlflow import MLflowTracker, check_mlflow
from farandole.notebook.sinks.wandb import WandbTracker, check_wandb


def trackers_of(options: argparse.Namespace) -> list[Tracker]:
    """Return the experiment trackers that the options name. Raise UsageError if one of them cannot be used."""
    found: list[Tracker] = []
    if options.mlflow is not None:
        check_mlflow()
        found.append(MLflowTracker(options.mlflow))
    if options.wandb is not None:
        check_wandb()
        found.append(WandbTracker(options.wandb))
    return found
