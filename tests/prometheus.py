"""Runs a real Prometheus, the one of Debian, with the configuration that the documentation shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from hub.process import local_session, wait_until
from spawner_config.local import free_port
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hub import RunningHub

DOCS = ROOT / "docs" / "how-to" / "monitoring"
START_SECONDS = 60
METRIC = re.compile(r"\b(?:farandole|jupyterhub)_[a-z_]+")


class Prometheus:
    """A Prometheus at a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"

    def configure(self, hub: RunningHub, token: str) -> None:
        """Write the documentation's configuration, with this hub's address and the token's file in it."""
        secret = self.folder / "farandole.token"
        secret.write_text(token, encoding="utf-8")
        text = (DOCS / "prometheus.yml").read_text(encoding="utf-8")
        for shipped, here in {
            "scheme: https": "scheme: http",
            "hub.example.org": urlsplit(hub.url).netloc,
            "/etc/prometheus/farandole.token": str(secret),
        }.items():
            assert text.count(shipped) == 2
            text = text.replace(shipped, here)
        (self.folder / "prometheus.yml").write_text(text, encoding="utf-8")

    def command(self) -> list[str]:
        """Return the command that runs this Prometheus; a missing program fails the test."""
        program = shutil.which("prometheus")
        if program is None:
            pytest.fail("The tests of metrics need prometheus; `make test` installs it.")
        where = {
            "config.file": self.folder / "prometheus.yml",
            "storage.tsdb.path": self.folder / "data",
            "web.listen-address": self.address,
        }
        return [program, *(f"--{key}={value}" for key, value in where.items())]

    def ready(self) -> bool:
        """Return whether it answers queries."""
        try:
            return local_session().get(f"http://{self.address}/-/ready", timeout=10).ok
        except OSError:
            return False

    def ask(self, path: str, **fields: str) -> Any:
        """Return the data of an answer of the HTTP API; an error fails the test with its reason."""
        answer = local_session().get(f"http://{self.address}/api/v1/{path}", params=fields, timeout=30).json()
        assert answer["status"] == "success", (fields, answer)
        return answer["data"]

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Return the values of an expression by those of its labels, without the target and the name of the metric."""
        found = self.ask("query", query=expression)["result"]
        return {_key(each["metric"]): float(each["value"][1]) for each in found}


def _key(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(value for name, value in sorted(labels.items()) if name not in {"__name__", "instance"})


def expressions() -> list[str]:
    """Return the expressions of Grafana's dashboard."""
    dashboard = json.loads((DOCS / "farandole.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@contextmanager
def prometheus_of(hub: RunningHub, folder: Path, token: str) -> Iterator[Prometheus]:
    """Run a Prometheus that reads this hub's metrics. Its log is in the error if it does not start."""
    prometheus = Prometheus(folder)
    prometheus.configure(hub, token)
    log = folder / "prometheus.log"
    with log.open("w") as output, subprocess.Popen(prometheus.command(), stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: prometheus.ready() or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, log.read_text(encoding="utf-8")[-4000:]
            yield prometheus
        finally:
            process.terminate()
            process.wait(START_SECONDS)
