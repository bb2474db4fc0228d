"""Limits that neither a server nor a user can exceed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.clients.kernel import CellError
from tests.docker.conftest import WORKERS
from tests.docker.hub_api import STOP_SECONDS, HubApi
from tests.flood import Flood

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.kernel import RemoteKernel
    from tests.docker.stack import Stack

USER = "lily"
CELL_SECONDS = 240.0
MIB = 1 << 20

EAT = """
import subprocess, sys
code = "held = [b'x' * (1 << 20) for _ in range(2000)]; print('all of it')"
done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(done.returncode, done.stdout)
"""
# Run two busy programs until the container has used up its share in three periods of the scheduler, or for a minute.
# With cgroup v2, the file is at the first path.
BURN = """
import subprocess, sys, time
from pathlib import Path

def throttled():
    files = map(Path, ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"))
    lines = next(file for file in files if file.exists()).read_text().splitlines()
    return int(dict(line.split() for line in lines)["nr_throttled"])

most, end = throttled() + 3, time.monotonic() + 60
running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
while throttled() < most and time.monotonic() < end:
    time.sleep(0.1)
for each in running:
    each.kill()
    each.wait()
print(throttled() >= most)
"""


@pytest.fixture(scope="module")
def api(stack: Stack) -> HubApi:
    return HubApi(stack, USER)


@pytest.fixture(scope="module")
def kernel(stack: Stack, api: HubApi) -> Iterator[RemoteKernel]:
    """Yield the kernel of a notebook server with the profile "small", after starting a worker with the same profile."""
    with stack.kernel(USER, "small") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 1 --profile small --backend torch --name eaten", deadline=CELL_SECONDS)
        yield kernel
    api.stop(USER, "")


@pytest.mark.release
def test_a_flood_of_one_user_leaves_the_hub_to_the_others(stack: Stack, api: HubApi) -> None:
    attacker = stack.browser("mallory")
    attacker.start_notebook("small")
    tokens = {"token": attacker.make_token(), "probe": api.token}
    flood = Flood(url=stack.url, user="mallory", login=attacker.login_cookie, **tokens)
    flood.run(60)
    attacker.stop_notebook()
    flood.assert_reached()
    assert flood.p99 < 1, (flood.p99, max(flood.seconds), flood.statuses)
    parts = [f"{stack.name}-hub", f"{stack.name}-proxy"]
    states = [stack.inspect(part) for part in parts]
    assert [(each["State"]["OOMKilled"], each["RestartCount"]) for each in states] == [(False, 0)] * 2
    size = stack.docker("exec", parts[0], "du", "--bytes", "--total", "--summarize", "/srv/farandole").split()[-2]
    assert int(size) < 20_000_000, flood.statuses


def test_the_engine_enforces_what_the_profile_says(stack: Stack, kernel: RemoteKernel) -> None:
    names = [name for name in stack.containers() if f"-{USER}" in name]
    assert len(names) == 2
    for name in names:
        host = stack.inspect(name)["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] == 700 * MIB
        assert host["CpuQuota"] / host["CpuPeriod"] == 0.5
        assert host["PidsLimit"] == 4096


def test_a_program_that_exceeds_the_memory_is_killed(kernel: RemoteKernel) -> None:
    assert kernel.execute(EAT, deadline=120).split() == ["-9"]


def test_two_programs_share_half_a_cpu(kernel: RemoteKernel) -> None:
    assert kernel.execute(BURN, deadline=120).strip() == "True"


def test_a_rank_that_exceeds_the_memory_is_reported_to_the_driver(kernel: RemoteKernel) -> None:
    with pytest.raises(CellError, match=r"rank 0 \(worker eaten-w0\).*out of memory.*a larger profile"):
        kernel.execute("%%distributed\nheld = [b'x' * (1 << 20) for _ in range(2000)]", deadline=CELL_SECONDS)
    assert "still 1" in kernel.execute(
        "%%distributed\nimport farandole as fd; print('still', fd.size())", deadline=CELL_SECONDS
    )


def test_a_server_whose_profile_has_no_memory_has_a_limit_too(stack: Stack) -> None:
    with stack.kernel("ada"):
        assert stack.inspect(f"{stack.name}-server-ada")["HostConfig"]["Memory"] == 4096 * MIB


def test_too_many_workers_and_ranks_are_refused_before_any_starts(stack: Stack, kernel: RemoteKernel) -> None:
    before = stack.containers()
    start = "from farandole import Cluster; Cluster.start({}, name='many')"
    with pytest.raises(CellError, match=f"That makes {WORKERS + 1} workers and this hub allows {WORKERS}"):
        kernel.execute(start.format(WORKERS), deadline=CELL_SECONDS)
    with pytest.raises(CellError, match="9 ranks on one worker are not possible: this hub allows 1 to 8"):
        kernel.execute(start.format("1, ranks=9"), deadline=CELL_SECONDS)
    assert stack.containers() == before


def test_concurrent_requests_get_no_more_workers_than_sequential_ones(api: HubApi) -> None:
    names = [f"rush-w{number}" for number in range(WORKERS + 2)]
    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(lambda name: api.ask(USER, name, role="worker", profile="small"), names))
    admitted = [name for name, answer in zip(names, answers, strict=True) if answer.status_code in {201, 202}]
    try:
        # The user already has one worker, so at most WORKERS - 1 requests can be admitted. There may be fewer, because
        # each request counts as a worker while the hub examines it, even if the hub refuses it later.
        assert 1 <= len(admitted) <= WORKERS - 1, [answer.text for answer in answers]
        assert {answer.status_code for answer in answers} <= {201, 202, 400}
    finally:
        api.stop(USER, *admitted)


def test_the_number_of_a_users_notebook_servers_is_limited(stack: Stack, api: HubApi, kernel: RemoteKernel) -> None:
    names = [f"more{number}" for number in range(4)]
    answers = [api.ask(USER, name, profile="small") for name in names]
    admitted = [name for name, answer in zip(names, answers, strict=True) if answer.status_code in {201, 202}]
    try:
        assert admitted == names[:2], [answer.text for answer in answers]
        assert "allows 3 for each user" in answers[2].json()["message"]
    finally:
        api.stop(USER, *admitted)
    wait_until(lambda: len([name for name in stack.containers() if f"-{USER}" in name]) == 2, STOP_SECONDS)
