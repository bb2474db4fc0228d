"""Sends a run to an MLflow tracking server or store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError
from farandole.notebook.sinks.delivery import Steps, Tracker
from farandole.protocol import Report, Status

if TYPE_CHECKING:
    from farandole.runs.run import Run

EXPERIMENT = "farandole"

_STATUS = {Status.FINISHED: "FINISHED", Status.FAILED: "FAILED", Status.LOST: "FAILED", Status.INTERRUPTED: "KILLED"}
_MOST_METRICS = 1000  # MLflow refuses larger batches.
_MOST_PARAMETERS = 100
_MOST_CHARACTERS = 5000  # MLflow refuses longer values of parameters and tags.


def check_mlflow() -> None:
    """Raise UsageError if MLflow is missing. Call this before a run starts."""
    try:
        from mlflow import MlflowClient  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--mlflow needs the package mlflow in this notebook's environment ({error}); "
            "run `%pip install mlflow-skinny`, or omit the option"
        ) from error


class MLflowTracker(Tracker):
    """Makes one MLflow run in the experiment `EXPERIMENT`. Metrics are named ``<series>/rank-<n>``."""

    name = "MLflow"

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: Any = None
        self._id = ""
        self._steps = Steps()

    def open(self, run: Run) -> None:
        """Start the MLflow run, with options and versions as parameters and tags."""
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunTag

        self._client = MlflowClient(tracking_uri=self._uri)
        found = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        created = self._client.create_run(experiment, int(run.started * 1000), run_name=run.name or run.id)
        self._id = created.info.run_id
        params = [Param(name, value) for name, value in _texts(_parameters(run)).items()]
        tags = [RunTag(name, value) for name, value in _texts(_tags(run)).items()]
        self._client.log_batch(self._id, params=params[:100], tags=tags[:100])

    def write(self, reports: list[Report]) -> None:
        """Send the values of reports."""
        from mlflow.entities import Metric

        metrics = [
            Metric(_key(report.rank, name), value, int(report.time * 1000), self._steps.of(report, name))
            for report in reports
            for name, value in report.values.items()
        ]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + _MOST_METRICS])

    def close(self, run: Run) -> None:
        """Send the hyper-parameters, the final status if the run has ended, and then the code and ``run.json``.

        The hyper-parameters come at the end, because MLflow refuses a second value of a parameter.
        Files come last, because servers often keep them in another store, for which this environment may lack a client.
        """
        self._send_config(run)
        if run.status.ended:
            self._client.set_tag(self._id, "farandole.notices", "\n".join(run.notices)[:_MOST_CHARACTERS])
            self._client.set_terminated(self._id, _STATUS[run.status], int((run.ended or 0) * 1000))
        self._client.log_text(self._id, run.code, "code.py")
        self._client.log_text(self._id, run.info.to_json(), "run.json")

    def _send_config(self, run: Run) -> None:
        from mlflow.entities import Param

        params = [Param(f"config.{_word(name)}", value) for name, value in _texts(run.config).items()]
        for first in range(0, len(params), _MOST_PARAMETERS):
            self._client.log_batch(self._id, params=params[first : first + _MOST_PARAMETERS])


def _parameters(run: Run) -> dict[str, Any]:
    info = run.info
    options = {f"options.{_word(name)}": value for name, value in info.options.items()}
    return {"backend": info.backend, "size": info.size, "resumed_from": info.resumed_from or "", **options}


def _tags(run: Run) -> dict[str, Any]:
    info = run.info
    groups = {"versions": info.versions, "data_sets": info.data_sets, "git": info.git or {}}
    values = {f"{group}.{_word(name)}": value for group, found in groups.items() for name, value in found.items()}
    return {"farandole.run": info.id, "farandole.cluster": info.cluster, **values}


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value)[:_MOST_CHARACTERS] for name, value in values.items()}


def _word(name: str) -> str:
    """Replace the characters that MLflow does not allow in names."""
    return re.sub(r"[^A-Za-z0-9_\-. /]", "_", name)


def _key(rank: int, name: str) -> str:
    return f"{_word(name)}/rank-{rank}"
