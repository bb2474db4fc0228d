"""Runs a hub with its proxy and one user in a temporary folder."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from hub.process import CONFIG, HubProcess
from tests.hub import run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "bench"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment variables that give each rank one thread, on both sides of a comparison."""

PROFILES = """
[limits]
workers_per_user = 64
ranks_per_worker = 64

[[profile]]
name = "bench"
description = "One thread a rank"
environment = { OMP_NUM_THREADS = "1", MKL_NUM_THREADS = "1" }
"""


@contextmanager
def bench_hub(profiles: str = PROFILES, config: Path = CONFIG) -> Iterator[HubProcess]:
    """Run a hub, and set the environment variables through which a driver in this process finds it."""
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as name:
        folder = Path(name)
        file = folder / "profiles.toml"
        file.write_text(profiles)
        with run_hub(folder / "state", file, config) as hub:
            ours = {"FARANDOLE_HUB_URL": hub.url, "FARANDOLE_RUNS": str(folder / "runs")}
            try:
                with environment(ours | {"JUPYTERHUB_API_TOKEN": hub.browser(USER).make_token()}):
                    yield hub.process
            except Exception:
                # Print the logs now, because their folder is about to be deleted.
                print(hub.logs(), file=sys.stderr, flush=True)
                raise


def environment(variables: dict[str, str]) -> AbstractContextManager[object]:
    """Set environment variables until the end of the block."""
    return patch.dict(os.environ, variables)


def quiet(_line: str) -> None:
    """Ignore a progress message."""
