"""fd.prepare gives what one process with the whole batch gives, on every backend and any number of ranks."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

from tests.contract.train_on_ranks import CASES

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


def _horovod_environments(size: int, server: RendezvousServer) -> list[dict[str, str]]:
    port = server.start()
    slots = get_host_assignments(parse_hosts(f"localhost:{size}"), size)
    server.init(slots)
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


def _run(environments: list[dict[str, str]], folder: Path) -> Path:
    script = [sys.executable, "-m", "tests.contract.train_on_ranks", str(folder)]
    ranks = [
        subprocess.Popen(script, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for env in environments
    ]
    try:
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    failed = [output for rank, output in zip(ranks, outputs, strict=True) if rank.returncode]
    assert not failed, failed[0]
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run([_environment("none", 0, 1)], tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module", params=[("torch", 2), ("torch", 4), ("horovod", 2), ("horovod", 4)], ids=str)
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    backend, size = request.param
    folder = tmp_path_factory.mktemp("together")
    if backend == "torch":
        return _run(_torch_environments(size), folder), size
    server = RendezvousServer(verbose=0)
    environments = _horovod_environments(size, server)
    try:
        return _run(environments, folder), size
    finally:
        server.stop()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters_agree_with_one_process(alone: Path, together: tuple[Path, int], case: tuple[str, int]) -> None:
    folder, size = together
    name = "-".join(map(str, case))
    expected = torch.load(alone / f"{name}.0.pt")
    for rank in range(size):
        found = torch.load(folder / f"{name}.{rank}.pt")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}")
