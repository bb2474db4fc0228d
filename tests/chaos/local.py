"""The soak test on a hub whose servers are local processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole import Cluster
from farandole.exceptions import NoClusterError

from hub.process import wait_until
from spawner_config.settings import ROOT
from tests.chaos import driver
from tests.chaos.cell import END, Journals, cell, memory_mark
from tests.chaos.leftovers import Leftovers
from tests.chaos.memory import MemoryLimit
from tests.chaos.network import Cut
from tests.chaos.site import Site
from tests.chaos.volume import Volume
from tests.hub import RunningHub, run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.cell import Life, Step
    from tests.chaos.schedule import Fault

USER = "chaos"
GONE_SECONDS = 30.0
STOP_SECONDS = 60.0
TAKEN_SECONDS = 60.0
ALWAYS = ("rank", "rank-0", "worker", "stop", "driver", "hub", "proxy")


class LocalSite(Site):
    """Injects faults by sending signals to processes. Root can also fill the disk, drop packets and limit memory."""

    def __init__(self, folder: Path, hub: RunningHub, volume: Volume) -> None:
        self._folder = folder
        self._hub = hub
        self._volume = volume
        self._where = {"hub_url": hub.url, "token": hub.token_for(USER)}
        self._task: dict[str, Any] = {}
        self._driver: subprocess.Popen[str] | None = None
        self._leftovers = Leftovers(hub.state)
        self._journals = Journals(folder)
        self._cut: Cut | None = None
        self._limit = MemoryLimit(f"farandole-chaos-{os.getpid()}")

    @cached_property
    def kinds(self) -> Sequence[str]:
        """The kinds of faults that this site can inject."""
        possible = {"disk": self._volume.small, "cut": Cut.possible(), "memory": MemoryLimit.possible()}
        return (*ALWAYS, *(kind for kind, can_be in possible.items() if can_be))

    @property
    def _work(self) -> Path:
        return Path(self._task["folder"])

    def begin(self, name: str, backend: str, workers: int) -> None:
        """Start a driver, which starts a cluster with this name and trains on it."""
        work = self._folder / name
        work.mkdir()
        self._leftovers = Leftovers(self._hub.state)
        self._journals = Journals(work)
        self._task = {
            "folder": str(work),
            "store": str(self._volume.folder / "runs"),
            "cluster": name,
            "backend": backend,
            "workers": workers,
            "code": cell(str(work)),
            "where": self._where,
        }
        self._start_driver()

    def hit(self, fault: Fault, ranks: Sequence[Step]) -> None:
        """Inject a fault."""
        self._leftovers.note()
        target = ranks[fault.rank]
        match fault.kind:
            case "rank" | "rank-0":
                os.kill(target.pid, signal.SIGKILL)
            case "worker":
                os.kill(target.parent, signal.SIGKILL)
            case "stop":
                os.kill(target.pid, signal.SIGSTOP)
            case "driver":
                self._kill_driver()
                self._start_driver()
            case "hub":
                self._hub.kill_and_restart()
            case "proxy":
                self._hub.kill_proxy()
            case "disk":
                self._volume.fill(fault.share)
            case "cut":
                self._cut = Cut(target.pid, ranks[(fault.rank + 1) % len(ranks)].pid)
                self._cut.make()
            case "memory":
                self._limit.set(target.pid)
                mark = Path(memory_mark(str(self._work), fault.rank))
                mark.touch()
                # Wait until the rank has removed this file. Until then, it may continue to train.
                wait_until(lambda: not mark.exists(), TAKEN_SECONDS)

    def hold(self, fault: Fault) -> None:
        """Fill the disk again, because the run may have removed files."""
        if fault.kind == "disk":
            self._volume.fill(fault.share)

    def heal(self, fault: Fault) -> None:
        """Free the disk, accept packets again, and remove the memory limit once it has killed a process."""
        if fault.kind == "disk":
            self._volume.free()
        if self._cut is not None:
            self._cut.restore()
            self._cut = None
        if fault.kind == "memory":
            self._limit.lift()

    def lives(self) -> list[Life]:
        """Return the steps that the run's ranks have completed so far."""
        return self._journals.read()

    def run_folder(self) -> Path | None:
        """Return the run's folder, or None if there is none yet."""
        name = self._work / driver.RUN
        return Path(self._task["store"]) / name.read_text() if name.exists() else None

    def outcome(self) -> str | None:
        """Return how the run ended, or None while it is running.

        Raises RuntimeError if the driver ended without recording an outcome.
        """
        assert self._driver is not None
        ended = self._driver.poll() is not None
        path = self._work / driver.OUTCOME
        if path.exists():
            return path.read_text()
        if ended:
            raise RuntimeError(
                f"the driver ended before the run did:\n{(self._work / 'driver.log').read_text()[-3000:]}"
            )
        return None

    def ask_to_end(self) -> None:
        """Make the training end at its next step."""
        (self._work / END).touch()

    def give_up(self) -> None:
        """Stop the driver and the cluster, whatever state they are in."""
        self._leftovers.note()
        self._kill_driver()
        # After a successful run, the driver has already stopped the cluster.
        with suppress(NoClusterError):
            Cluster.stop_named(self._task["cluster"], **self._where)

    def left(self) -> list[str]:
        """Return the run's processes, commits in shared memory and temporary folders that still exist."""
        with suppress(TimeoutError):
            wait_until(lambda: not self._left(), GONE_SECONDS)
        return self._left()

    def _left(self) -> list[str]:
        run = self.run_folder()
        return self._leftovers.left(run.name if run is not None else None)

    def keep(self, folder: Path) -> None:
        """Copy all evidence from the run to ``folder``."""
        shutil.copytree(self._work, folder / "work")
        shutil.copytree(self._hub.state / "logs", folder / "server-logs")
        shutil.copy(self._hub.process.log_path, folder)
        if (run := self.run_folder()) is not None and run.exists():
            shutil.copytree(run, folder / run.name)

    def _start_driver(self) -> None:
        with (self._work / "driver.log").open("a") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.driver"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
        assert self._driver.stdin is not None
        with self._driver.stdin as words:
            words.write(json.dumps(self._task) + "\n")

    def _kill_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait()


@contextmanager
def local_site(folder: Path) -> Iterator[LocalSite]:
    """Run a hub for a soak test, with its state and its runs in ``folder``."""
    folder.mkdir(exist_ok=True)
    if Cut.possible():
        Cut.restore_all()
    with Volume.open(folder / "volume") as volume, run_hub(folder / "state") as hub:
        yield LocalSite(folder, hub, volume)
