"""Starts worlds of plain processes on this machine for the contract tests of the rank code."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

ROOT = Path(__file__).parents[2]


def _environment(backend: str, rank: int, size: int) -> dict[str, str]:
    own = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size}
    environment = {f"FARANDOLE_{name}": str(value) for name, value in own.items()}
    path = os.pathsep.join([str(ROOT / "extension"), str(ROOT)])
    return os.environ | environment | {"FARANDOLE_BACKEND": backend, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _torch_environments(size: int) -> list[dict[str, str]]:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(size)}
    return [_environment("torch", rank, size) | meeting | {"RANK": str(rank)} for rank in range(size)]


def start_rendezvous(server: RendezvousServer, size: int) -> tuple[int, list[SlotInfo]]:
    """Start a server at which Horovod's ranks exchange their addresses. Return its port and the slot of each rank.

    Each world needs a server of its own. A server that an earlier world has used may still have that world's addresses.
    A rank that forms the next world sooner than its peers would connect to them, and Gloo would abort the process.
    """
    port = server.start()
    slots = get_host_assignments(parse_hosts(f"localhost:{size}"), size)
    server.init(slots)
    return port, slots


def _horovod_environments(size: int, server: RendezvousServer) -> list[dict[str, str]]:
    port, slots = start_rendezvous(server, size)
    common = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_HOSTNAME": "localhost",
    }
    return [
        _environment("horovod", slot.rank, size)
        | common
        | {
            f"HOROVOD_{name}": str(getattr(slot, name.lower()))
            for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        }
        for slot in slots
    ]


def run(
    environments: list[dict[str, str]],
    module: str,
    *arguments: object,
    killed: Collection[int] = frozenset(),
    seconds: float = 120,
) -> None:
    """Run a module as a script on all ranks of a world. Fail with the output of a failed rank, if any.

    The ranks in ``killed`` must end by SIGKILL, and the others within ``seconds``.
    """
    # Turn these warnings into errors, because torch's deprecation warnings would appear in red in users' cells.
    script = [sys.executable, "-W", "error::FutureWarning", "-m", module, *map(str, arguments)]
    ranks = [
        subprocess.Popen(script, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for env in environments
    ]
    try:
        outputs = [rank.communicate(timeout=seconds)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    expected = [-signal.SIGKILL if rank in killed else 0 for rank in range(len(ranks))]
    ended = zip(ranks, outputs, expected, strict=True)
    failed = [output or "no output" for rank, output, code in ended if rank.returncode != code]
    assert not failed, failed[0]


@contextlib.contextmanager
def world(backend: str, size: int) -> Iterator[list[dict[str, str]]]:
    """Yield the environment variables of each rank."""
    if backend == "horovod":
        server = RendezvousServer(verbose=0)
        try:
            yield _horovod_environments(size, server)
        finally:
            server.stop()
    else:
        yield _torch_environments(size) if backend == "torch" else [_environment("none", 0, 1)]
