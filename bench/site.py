"""A real hub with its proxy and one user, in a temporary folder."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hub.process import CONFIG, HubProcess
from spawner_config.local import free_port
from spawner_config.settings import Settings
from tests.clients.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "bench"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""One thread per rank on both sides of each comparison."""

PROFILES = """
[limits]
workers_per_user = 64
ranks_per_worker = 64

[[profile]]
name = "bench"
description = "One thread a rank"
environment = { OMP_NUM_THREADS = "1", MKL_NUM_THREADS = "1" }
"""


class LeftoversError(RuntimeError):
    """Raised when processes of a hub had to be killed after a measurement."""


@contextmanager
def bench_hub(profiles: str = PROFILES, config: Path = CONFIG) -> Iterator[HubProcess]:
    """Run a hub; the environment variables of this process point to it, and to its folder for runs."""
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as name:
        folder = Path(name)
        file = folder / "profiles.toml"
        file.write_text(profiles)
        hub = HubProcess(Settings(port=free_port(), state=folder / "state", profiles=file), config)
        try:
            hub.wait_ready()
            token = Browser(hub.url, USER, hub.password).make_token()
            ours = {"FARANDOLE_HUB_URL": hub.url, "JUPYTERHUB_API_TOKEN": token, "FARANDOLE_RUNS": str(folder / "runs")}
            with environment(ours):
                yield hub
        except Exception:
            show_logs(hub)
            raise
        finally:
            leftovers = hub.stop()
        if leftovers:
            raise LeftoversError(f"had to be killed: {', '.join(leftovers)}")


def show_logs(hub: HubProcess) -> None:
    """Print the ends of the hub's and its servers' logs before their folder is deleted."""
    for log in sorted((hub.settings.state / "logs").glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()[-20:]
        print("\n".join([f"--- {log.name}", *lines]), file=sys.stderr)
    print(hub.log_tail(), file=sys.stderr, flush=True)


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables temporarily."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def quiet(_line: str) -> None:
    """Discard a line of progress."""
