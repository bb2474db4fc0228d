"""Two engines that form a swarm. The tests treat them as two machines that are connected by a cable."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from typing import TYPE_CHECKING

from tests.docker.engines.daemon import wait_for
from tests.docker.engines.debian import run
from tests.docker.engines.second import SecondEngine, running

if TYPE_CHECKING:
    from collections.abc import Iterator

CABLE = IPv4Network("10.216.255.8/30")
REGISTRY = IPv4Network("10.216.254.0/29")
"""A network of this machine, at whose first address both engines pull from a registry without TLS."""
CABLE_ENDS = ("cable-1", "cable-2")
GPU_CLASS = "stand-in"
NODES_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """A swarm whose hub runs on ``manager``. Only ``other`` has a GPU, which exists in name only."""

    manager: SecondEngine
    other: SecondEngine

    @property
    def engines(self) -> tuple[SecondEngine, SecondEngine]:
        """Both engines, with the manager first."""
        return self.manager, self.other

    def copy(self, *images: str) -> None:
        """Copy images from this machine's first engine to both engines of the swarm."""
        for engine in self.engines:
            engine.copy(*images)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Prevent the swarm from starting anything on ``other``."""
        self._offer("pause")
        try:
            yield
        finally:
            self._offer("active")

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Disconnect the two engines, and reconnect them at the end. In between, each treats the other as dead."""
        self._plug("down")
        try:
            yield
        finally:
            self._plug("up")
            wait_for(lambda: _ready(self.manager) == 2, "Reconnecting the swarm", NODES_SECONDS)

    def _offer(self, availability: str) -> None:
        self.manager.docker("node", "update", f"--availability={availability}", node_id(self.other))

    def _plug(self, state: str) -> None:
        run("ip", "-n", self.other.name, "link", "set", CABLE_ENDS[1], state)

    def logs(self) -> str:
        """Return the last lines of both engines' logs."""
        return "\n".join(engine.logs() for engine in self.engines)


@contextmanager
def swarm() -> Iterator[Swarm]:
    """Run two engines as one swarm, with node labels that the tests use. ``other`` has the GPU."""
    registry = {"insecure-registries": [str(REGISTRY)]}
    manager = SecondEngine(
        name="farandole-s1",
        cable=IPv4Network("10.216.255.0/30"),
        containers=IPv4Network("10.216.0.0/24"),
        settings=registry,
    )
    other = SecondEngine(
        name="farandole-s2",
        cable=IPv4Network("10.216.255.4/30"),
        containers=IPv4Network("10.216.1.0/24"),
        settings={**registry, "node-generic-resources": ["GPU=GPU-00000001"]},
    )
    with ExitStack() as stack:
        for engine in (manager, other):
            stack.enter_context(running(engine))
            run("ip", "-n", engine.name, "route", "add", str(REGISTRY), "via", str(engine.cable[1]))
        _form(manager, other)
        yield Swarm(manager=manager, other=other)


def _form(manager: SecondEngine, other: SecondEngine) -> None:
    first, second = _connect(manager, other)
    manager.docker("swarm", "init", f"--advertise-addr={first}", "--default-addr-pool=10.216.64.0/18")
    token = manager.docker("swarm", "join-token", "--quiet", "worker").strip()
    other.docker("swarm", "join", f"--advertise-addr={second}", f"--token={token}", str(first))
    wait_for(lambda: _ready(manager) == 2, "Forming the swarm", NODES_SECONDS)
    label = f"--label-add=farandole.gpu={GPU_CLASS}"
    manager.docker("node", "update", label, "--label-add=disk=fast", node_id(other))
    manager.docker("node", "update", "--label-add=serving=yes", node_id(manager))


def node_id(engine: SecondEngine) -> str:
    """Return the id of an engine's node in its swarm."""
    return engine.docker("info", "--format", "{{.Swarm.NodeID}}").strip()


def _ready(manager: SecondEngine) -> int:
    return manager.docker("node", "ls", "--format", "{{.Status}}").split().count("Ready")


def _connect(one: SecondEngine, another: SecondEngine) -> tuple[IPv4Interface | str, str]:
    """Connect both engines with a cable and return the addresses of its ends."""
    here, there = CABLE_ENDS
    run("ip", "link", "add", here, "netns", one.name, "type", "veth", "peer", "name", there, "netns", another.name)
    addresses = str(CABLE[1]), str(CABLE[2])
    for engine, end, address in zip((one, another), CABLE_ENDS, addresses, strict=True):
        run("ip", "-n", engine.name, "address", "add", f"{address}/{CABLE.prefixlen}", "dev", end)
        run("ip", "-n", engine.name, "link", "set", end, "up")
    return addresses
