"""Sends a run to Weights & Biases, or in offline mode to a folder that `wandb sync` uploads later."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython

from farandole.exceptions import UsageError
from farandole.notebook.sinks.delivery import Steps, Tracker
from farandole.protocol import Report, Status

if TYPE_CHECKING:
    from farandole.runs.run import Run

PROJECT = "farandole"
PROCESS = "farandole.notebook.sinks.wandb_process"


def check_wandb() -> None:
    """Raise UsageError if W&B is missing, or if it is online and the user cannot log in.

    Call this before a run starts, in the thread of the cell, because the user may be asked for a key.
    """
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            f"--wandb needs the package wandb in this notebook's environment ({error}); "
            "run `%pip install wandb`, or omit the option"
        ) from error
    try:
        ready = _mode() != "online" or wandb.login(prompt=_may_ask()) or _mode() != "online"
    except (wandb.Error, OSError, ValueError) as error:
        raise _no_login(str(error)) from error
    if not ready:
        raise _no_login("no API key is configured")


def _may_ask() -> bool:
    """Return whether the user can be asked for a key. Clients such as papermill run cells without input."""
    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    return kernel is None or bool(kernel._allow_stdin)


def _no_login(reason: str) -> UsageError:
    return UsageError(
        f"--wandb cannot log in to Weights & Biases: {reason}; run `wandb login` in a terminal or set WANDB_API_KEY, "
        "or set WANDB_MODE=offline to keep the run in a folder"
    )


def _mode() -> str:
    """Return the mode that the user has set. W&B itself reads the variable only once in a process."""
    import wandb

    return os.environ.get("WANDB_MODE") or wandb.setup().settings.mode or "online"


class WandbTracker(Tracker):
    """Makes one run in a project of W&B, with the id of the run. Metrics are named ``<series>/rank_<n>``."""

    name = "W&B"

    def __init__(self, project: str) -> None:
        self._project = project
        self._steps = Steps()
        self._process: WandbProcess

    def open(self, run: Run) -> None:
        """Start the run of W&B, with options and versions as its configuration."""
        self._process = WandbProcess()
        arguments = {"project": self._project, "id": run.id, "name": run.name or run.id, "mode": _mode()}
        self._process.send("open", {**arguments, "config": _config(run)})
        self._process.send("save", {"code.py": run.code})

    def write(self, reports: list[Report]) -> None:
        """Send the values of reports."""
        self._process.send("log", [row for report in reports for row in self._rows(report)])

    def close(self, run: Run) -> None:
        """Send the hyper-parameters, ``run.json``, the notices about lost ranks, and the outcome."""
        self._process.send("configure", run.config)
        self._process.send("save", {"run.json": run.info.to_json()})
        self._process.send("summarize", {"notices": list(run.notices), "status": str(run.status)})
        self._process.send("finish", 0 if run.status is Status.FINISHED else 1)
        self._process.end()

    def _rows(self, report: Report) -> list[dict[str, float]]:
        """Return the values of a report, grouped by step."""
        rows: dict[int, dict[str, float]] = {}
        for name, value in report.values.items():
            rows.setdefault(self._steps.of(report, name), {})[_key(report.rank, name)] = value
        # The steps of all ranks together are not ordered, so they cannot be the step that W&B counts itself.
        return [{**row, "step": step, "_timestamp": report.time} for step, row in rows.items()]


class WandbProcess:
    """The process that holds the run of W&B; see `farandole.notebook.sinks.wandb_process`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # The process is silent until it fails, so the pipe does not fill up.
            stderr=subprocess.PIPE,
            text=True,
            # An interrupt of the kernel goes to all processes of its group.
            start_new_session=True,
        )

    def send(self, action: str, argument: Any) -> None:
        """Make the process call a method of `Recorder`. Raise OSError with the reason if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([action, argument]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.end()

    def end(self) -> None:
        """Wait until the process has sent everything. Raise OSError with the reason if it has failed."""
        _, errors = self._process.communicate()
        if self._process.returncode:
            reason = errors.strip().rpartition("\n")[2]
            raise OSError(reason or f"its process ended with status {self._process.returncode}")


def _config(run: Run) -> dict[str, Any]:
    info = run.info
    return {
        "backend": info.backend,
        "size": info.size,
        "resumed_from": info.resumed_from,
        "options": dict(info.options),
        "versions": dict(info.versions),
        "data_sets": dict(info.data_sets),
        "git": dict(info.git or {}),
        "cluster": info.cluster,
    }


def _key(rank: int, name: str) -> str:
    """Return the name of a metric. W&B allows only letters, digits and underscores, and groups by the part before /."""
    return f"{re.sub(r'[^A-Za-z0-9_/]', '_', name)}/rank_{rank}"
