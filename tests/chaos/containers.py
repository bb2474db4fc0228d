"""The soak test on a hub whose servers run in containers."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import time
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from hub.process import wait_until
from tests.chaos import driver
from tests.chaos.cell import END, Journals, cell, memory_mark
from tests.chaos.network import Blackhole
from tests.chaos.site import Site
from tests.chaos.volume import Volume
from tests.docker.engines import first
from tests.docker.engines.janitor import alone
from tests.docker.probes import networks
from tests.docker.stack import LABEL, Stack, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.cell import Life, Step
    from tests.chaos.schedule import Fault

USER = "chaos"
RUNS = "/home/user/farandole/runs"
"""The folder of the runs. It is in the user's home, whose disk a fault may fill."""
GROUP = "journals"
JOURNALS = f"/groups/{GROUP}"
"""The folder of the soak test's own files. No fault fills its disk."""
MEMORY = "2G"
SUBNETS = "10.214.48.0/20"
GONE_SECONDS = 60.0
LOOK_SECONDS = 1.0
TAKEN_SECONDS = 60.0
ALWAYS = ("rank", "rank-0", "worker", "stop", "driver", "hub", "proxy", "memory")
LEAD = """
python driver.py <task >>driver.log 2>&1 &
echo $! >pid
wait $! || { [ $? = 137 ] || touch driver.ended; }
"""
"""A shell script that runs the driver, and creates ``driver.ended`` unless the driver was killed with SIGKILL."""
STOP = """
import sys
from farandole import Cluster
from farandole.exceptions import NoClusterError
try:
    Cluster.stop_named(sys.argv[1])
except NoClusterError:
    pass
"""


class DockerSite(Site):
    """Injects faults into processes in containers and into whole containers. A run's files are read from a copy."""

    def __init__(self, folder: Path, stack: Stack, home: Volume) -> None:
        self._folder = folder
        self._stack = stack
        self._home = home
        self._notebook = f"{stack.name}-server-{USER}"
        self._name = self._work = ""
        self._copied = 0.0
        self._journals = Journals(folder)
        self._cut: Blackhole | None = None

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of faults that this site can inject."""
        possible = {"cut": Blackhole.possible(), "disk": self._home.small}
        return (*ALWAYS, *(kind for kind, can_be in possible.items() if can_be))

    def begin(self, name: str, backend: str, workers: int) -> None:
        """Start a driver, which starts a cluster with this name and trains on it."""
        self._name, self._work, self._copied = name, f"{JOURNALS}/{name}", 0.0
        self._journals = Journals(self._at(self._work))
        task = {
            "folder": self._work,
            "store": RUNS,
            "cluster": name,
            "backend": backend,
            "workers": workers,
            "code": cell(self._work),
            "where": {},
        }
        self._exec(self._notebook, "mkdir", self._work)
        self._put("driver.py", Path(driver.__file__).read_text())
        self._put("task", json.dumps(task))
        self._start_driver()

    def hit(self, fault: Fault, ranks: Sequence[Step]) -> None:
        """Inject a fault."""
        target = ranks[fault.rank]
        match fault.kind:
            case "rank" | "rank-0":
                self._signal(self._container(target), "KILL", target.pid)
            case "stop":
                self._signal(self._container(target), "STOP", target.pid)
            case "worker":
                self._stack.docker("kill", self._container(target))
            case "driver":
                self._kill_driver()
                self._start_driver()
            case "hub" | "proxy":
                self._stack.docker("kill", f"{self._stack.name}-{fault.kind}")
                self._stack.docker("start", f"{self._stack.name}-{fault.kind}")
                self._stack.wait_ready()
            case "memory":
                mark = memory_mark(self._work, fault.rank)
                self._exec(self._notebook, "touch", mark)
                # Wait until the rank has removed this file. Before that, it may continue to train, and die only
                # during the next fault.
                gone = f"test -e {mark} || echo gone"
                wait_until(lambda: bool(self._exec(self._notebook, "sh", "-c", gone)), TAKEN_SECONDS)
            case "cut":
                other = self._container(ranks[(fault.rank + 1) % len(ranks)])
                self._cut = Blackhole(*self._pid_and_address(self._container(target)), *self._pid_and_address(other))
            case "disk":
                self._home.fill(fault.share)

    def hold(self, fault: Fault) -> None:
        """Fill the disk again, because the run may have removed files."""
        if fault.kind == "disk":
            self._home.fill(fault.share)

    def heal(self, fault: Fault) -> None:
        """Reconnect the network and free the disk."""
        if fault.kind == "disk":
            self._home.free()
        if self._cut is not None:
            self._cut.restore()
            self._cut = None

    def lives(self) -> list[Life]:
        """Return the steps that the run's ranks have completed so far."""
        self._copy()
        return self._journals.read()

    def run_folder(self) -> Path | None:
        """Return a copy of the run's folder, or None if there is none yet."""
        self._copy()
        name = self._at(self._work) / driver.RUN
        return self._at(RUNS) / name.read_text() if name.exists() else None

    def outcome(self) -> str | None:
        """Return how the run ended, or None while it is running.

        Raises RuntimeError if the driver ended without recording an outcome.
        """
        self._copy()
        work = self._at(self._work)
        if (work / driver.OUTCOME).exists():
            self._copy(all_of_it=True)
            return (work / driver.OUTCOME).read_text()
        if (work / "driver.ended").exists():
            raise RuntimeError(f"the driver ended before the run did:\n{(work / 'driver.log').read_text()[-3000:]}")
        return None

    def ask_to_end(self) -> None:
        """Make the training end at its next step."""
        self._exec(self._notebook, "touch", f"{self._work}/{END}")

    def give_up(self) -> None:
        """Stop the driver and the cluster, whatever state they are in."""
        self._kill_driver()
        self._exec(self._notebook, "python", "-c", STOP, self._name)
        self._copy(all_of_it=True)

    def left(self) -> list[str]:
        """Return the workers' containers that still exist after the run."""
        with suppress(TimeoutError):
            wait_until(lambda: not self._workers(), GONE_SECONDS)
        return [f"container {name}" for name in self._workers()]

    def keep(self, folder: Path) -> None:
        """Copy all evidence from the run to ``folder``."""
        shutil.copytree(self._folder / "copy", folder)
        (folder / "containers.log").write_text(self._stack.logs())

    def _start_driver(self) -> None:
        self._exec(self._notebook, "rm", "-f", f"{self._work}/pid")
        self._stack.docker("exec", "-d", "-w", self._work, self._notebook, "sh", "-c", LEAD)
        wait_until(lambda: bool(self._exec(self._notebook, "sh", "-c", f"cat {self._work}/pid || true")), 30)

    def _kill_driver(self) -> None:
        kill = f"kill -9 $(cat {self._work}/pid) 2>/dev/null || true"
        self._exec(self._notebook, "sh", "-c", kill)

    def _signal(self, container: str, signal: str, pid: int) -> None:
        try:
            self._exec(container, "sh", "-c", f"kill -{signal} {pid}")
        except AssertionError as exc:
            raise ProcessLookupError(f"there is no process {pid} in {container}") from exc

    def _exec(self, container: str, *command: str) -> str:
        return self._stack.docker("exec", container, *command)

    def _put(self, name: str, text: str) -> None:
        """Write a file to the run's working folder."""
        command = ["docker", "exec", "-i", self._notebook, "sh", "-c", f"cat >{self._work}/{name}"]
        subprocess.run(command, input=text, text=True, check=True)

    def _workers(self) -> list[str]:
        return [name for name in self._stack.containers() if name.startswith(f"{self._notebook}--")]

    def _container(self, target: Step) -> str:
        """Return the container in which a rank runs. Raises KeyError if the container no longer exists."""
        # The names of workers' containers end in a hash, which the spawner adds.
        return {name.rpartition("--")[2].rpartition("-")[0]: name for name in self._workers()}[target.worker]

    def _pid_and_address(self, container: str) -> tuple[int, str]:
        [address] = networks(self._stack, container).values()
        return int(self._stack.inspect(container)["State"]["Pid"]), address

    def _at(self, path: str) -> Path:
        return self._folder / "copy" / Path(path).relative_to("/")

    def _copy(self, *, all_of_it: bool = False) -> None:
        """Copy the journals and the run's files. The contents of checkpoints are copied only with ``all_of_it``."""
        if time.monotonic() - self._copied < LOOK_SECONDS and not all_of_it:
            return
        places = [str(Path(path).relative_to("/")) for path in (self._work, RUNS)]
        left_out = [] if all_of_it else ["--exclude=*.distcp"]
        # tar reports an error if files change or vanish during the copy, so ignore its exit status.
        pack = ["tar", "-C", "/", "--ignore-failed-read", *left_out, "-c", *places]
        packed = subprocess.run(["docker", "exec", self._notebook, *pack], capture_output=True, check=False).stdout
        shutil.rmtree(self._folder / "copy", ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(packed)) as files:
            files.extractall(self._folder / "copy", filter="data")
        self._copied = time.monotonic()


@contextmanager
def docker_site(folder: Path) -> Iterator[DockerSite]:
    """Reserve this machine's engine for this session, and run a hub like `site_on`."""
    first.check_local()
    with alone(), site_on(folder) as site:
        yield site


@contextmanager
def site_on(folder: Path) -> Iterator[DockerSite]:
    """Run a hub in containers for a soak test. Then check that no network or container of a user is left."""
    shares = {"FARANDOLE_GROUP_FOLDERS": f"{GROUP}: {USER}"}
    with (
        Volume.open(folder / "home") as home,
        running(folder, subnets=SUBNETS, FARANDOLE_MEMORY=MEMORY, **shares) as stack,
    ):
        _lend(stack, home)
        browser = stack.browser(USER)
        browser.start_notebook()
        yield DockerSite(folder, stack, home)
        browser.stop_notebook()
        network = f"{stack.name}-user-"
        wait_until(lambda: network not in stack.docker("network", "ls", "--format", "{{.Name}}"), GONE_SECONDS)
        assert stack.containers() == []


def _lend(stack: Stack, home: Volume) -> None:
    """Create the volume of the user's home from a folder on this machine. Otherwise, the hub would create it."""
    options = {"type": "none", "o": "bind", "device": str(home.folder)}
    given = [word for key, value in options.items() for word in ("--opt", f"{key}={value}")]
    stack.docker("volume", "create", *given, "--label", f"{LABEL}={stack.name}", f"{stack.name}-home-{USER}")
