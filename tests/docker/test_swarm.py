"""A hub on a swarm of two machines: training, placement, isolation, restarts and failures."""

from __future__ import annotations

import secrets
import subprocess
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hub.doctor.firewall.internet import swarm_commands
from hub.process import wait_until
from images.names import HUB, NOTEBOOK, NOTEBOOK_CUDA, version
from spawner_config.settings import ROOT
from tests.cells import SUM
from tests.clients.kernel import CellError
from tests.docker.conftest import MODEL, give_profiles
from tests.docker.engines.swarm import CABLE, GPU_CLASS, REGISTRY, Swarm, node_id, swarm
from tests.docker.hub_api import HubApi
from tests.docker.probes import LISTEN, LISTEN_PORT, reached
from tests.docker.remote_lab import administrators_lab
from tests.docker.remote_snapshots import check_snapshots
from tests.docker.stack import ADMIN
from tests.docker.swarm_stack import Server, SwarmStack, running
from tests.docker.test_browser import train_in_the_first_notebook
from tests.docker.test_doctor import DIAL
from tests.docker.test_shares import PUBLISH as PUBLISH_DATA
from tests.docker.test_stack import REPORTED, REPORTING
from tests.docker.test_streams import CONNECT, PUBLISH, READ
from tests.variables import with_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farandole.registry.publish import Published
    from playwright.sync_api import Browser

    from tests.clients.kernel import RemoteKernel
    from tests.docker.engines.second import SecondEngine
    from tests.docker.registry import Registry

pytestmark = pytest.mark.release

CELL_SECONDS = 240.0
STOP_SECONDS = 180
STREAMS = ("streams", 4222)
ON_CPUS = '# swarm = { labels = { serving = "yes" } }'
"""The line of the repository's profiles that keeps endpoints on machines without GPUs."""
LABELLED = """
[[profile]]
name = "fast"
description = "on machines with a fast disk"
swarm = { labels = { disk = "fast" } }

[[profile]]
name = "nowhere"
description = "on machines that nobody has"
swarm = { labels = { disk = "none" } }

[[profile]]
name = "digits"
description = "on machines that have a version of a data set"
data = ["digits@1"]
"""
COPY = """
cd /tmp && mkdir from && echo 42 > from/a.txt
python -m farandole.datasets.versions copy from /to
"""
READY = """
import socket
with socket.socket() as connection:
    print(connection.connect_ex(("127.0.0.1", 8080)) == 0)
"""
INFER = f"""
import json, urllib.request
body = {{"inputs": [{{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}}]}}
headers = {{"Content-Type": "application/json"}}
url = "http://127.0.0.1:8080/v2/models/{MODEL}/infer"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=30) as answer:
    print(json.load(answer)["outputs"][0]["data"])
"""
ENOUGH = "/home/user/enough"
ELASTIC = f"""%%distributed_train --elastic -o run
import time, torch, farandole as fd, torch.distributed as dist
from pathlib import Path
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4))
model, optimizer, loader = fd.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=8))
state = fd.state(model, optimizer, loader, step=0)

@fd.elastic
def train(state):
    while True:
        enough = torch.tensor([float(Path({ENOUGH!r}).exists())])
        dist.all_reduce(enough)
        if enough.item():
            return
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        fd.report(step=state.step, size=fd.size())
        state.commit()
        time.sleep(0.05)

train(state)
fd.result(state.step)
"""
"""A cell that trains and reports each step until a rank finds the file `ENOUGH` in the home that all ranks share."""


@pytest.fixture(scope="module")
def machines() -> Iterator[Swarm]:
    with swarm() as both:
        both.manager.copy(HUB.tag(version()))
        both.copy(NOTEBOOK.tag(version()))
        for engine in both.engines:
            # Workers with GPUs use the CUDA image, which does not run on stand-in GPUs. Give its name to the CPU image.
            engine.docker("tag", NOTEBOOK.tag(version()), NOTEBOOK_CUDA.tag(version()))
            copy = ("--entrypoint=sh", NOTEBOOK.tag(version()), "-c", COPY)
            engine.docker("run", "--rm", "--user=root", "--volume=digits-v1:/to", *copy)
        yield both


@pytest.fixture(scope="module")
def swarm_stack(machines: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwarmStack]:
    homes = tmp_path_factory.mktemp("homes")
    settings = {
        "FARANDOLE_GPUS": f"GPU-00000001:{GPU_CLASS}",
        "FARANDOLE_MODEL_IMAGES": f"{REGISTRY[1]}:*/lab/*",
        "FARANDOLE_SHARED_VOLUMES": "digits@1:/data/digits",
        "FARANDOLE_DATA_PUBLISHERS": "emmy",
        "COMPOSE_PROFILES": "streams",
        "FARANDOLE_STREAMS_SECRET": secrets.token_hex(32),
    }
    profiles = (ROOT / "hub" / "profiles.toml").read_text()
    assert ON_CPUS in profiles
    with running(tmp_path_factory.mktemp("swarm"), machines, homes, **settings) as stack:
        give_profiles(stack, with_variables(profiles.replace(ON_CPUS, ON_CPUS[2:])) + LABELLED)
        yield stack


@pytest.fixture(scope="module")
def ada(swarm_stack: SwarmStack) -> Iterator[RemoteKernel]:
    """Yield the kernel of a user whose cluster has two workers."""
    with swarm_stack.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
        yield kernel
        stop_cluster(swarm_stack, "ada", kernel)


@pytest.fixture
def hedy(swarm_stack: SwarmStack) -> Iterator[RemoteKernel]:
    """Yield the kernel of a user, and stop the user's cluster at the end."""
    with swarm_stack.kernel("hedy") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        yield kernel
        stop_cluster(swarm_stack, "hedy", kernel)


def stop_cluster(stack: SwarmStack, user: str, kernel: RemoteKernel) -> None:
    """Stop the user's cluster if there is one, and wait until its workers are gone."""
    if stack.workers(user):
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    wait_until(lambda: not stack.workers(user), STOP_SECONDS)


def test_a_cell_trains_over_two_machines(swarm_stack: SwarmStack, ada: RemoteKernel) -> None:
    workers = swarm_stack.workers("ada")
    assert {worker.engine.name for worker in workers} == {engine.name for engine in swarm_stack.swarm.engines}
    output = ada.execute(f"%%distributed\n{SUM['horovod']}", deadline=CELL_SECONDS)
    assert output.split()[1:3] + output.split()[-1:] == ["ranks", "0-1", "2"], output
    for worker in workers:
        can_do_no_more_than_it_must(worker)


def can_do_no_more_than_it_must(server: Server) -> None:
    found = server.inspect()
    host = found["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges" in " ".join(host["SecurityOpt"])
    assert (host["PidsLimit"], host["Memory"]) == (4096, 4 << 30)
    assert {mount["Type"] for mount in found["Mounts"]} == {"volume", "tmpfs"}
    assert server.run("id", "--user") == "1000"
    assert "1.0G" in server.run("df", "--human-readable", "/dev/shm")


def test_the_first_notebook_trains_over_two_machines(swarm_stack: SwarmStack, chromium: Browser) -> None:
    with administrators_lab(swarm_stack, chromium) as lab:
        train_in_the_first_notebook(lab, lambda: len({worker.engine.name for worker in swarm_stack.workers(ADMIN)}))
    swarm_stack.browser(ADMIN).stop_notebook()


def test_a_profile_selects_machines_by_label(swarm_stack: SwarmStack) -> None:
    api = HubApi(swarm_stack, "emmy")
    names = [f"fast-w{index}" for index in range(2)]
    for name in names:
        assert api.start("emmy", name, role="worker", profile="fast")["ready"]
    machines = {worker.engine.name for worker in swarm_stack.workers("emmy")}
    assert machines == {swarm_stack.swarm.other.name}
    refused = api.start("emmy", "no-w0", role="worker", profile="nowhere")
    assert refused["failed"]
    assert "no suitable node (scheduling constraints not satisfied on 2 nodes)" in refused["message"]
    api.stop("emmy", *names)
    # The user's network is removed together with the user's last server.
    wait_until(lambda: not swarm_stack.docker("network", "ls", "-q", "--filter", "name=-user-emmy"), STOP_SECONDS)


def test_workers_run_where_their_data_set_is_according_to_labels(swarm_stack: SwarmStack) -> None:
    """Both machines have the data set. The hub labels only its own machine, and the administrator the other."""
    api = HubApi(swarm_stack, "emmy")
    manager, other = swarm_stack.swarm.engines
    assert machines_of_two_workers(swarm_stack, api) == {manager.name}
    manager.docker("node", "update", "--label-add=farandole.data.digits-v1=yes", node_id(other))
    assert machines_of_two_workers(swarm_stack, api) == {manager.name, other.name}


def machines_of_two_workers(stack: SwarmStack, api: HubApi) -> set[str]:
    """Return the machines on which two workers with the profile `digits` run, and stop the workers."""
    names = [f"digits-w{index}" for index in range(2)]
    for name in names:
        assert api.start("emmy", name, role="worker", profile="digits")["ready"]
    found = {worker.engine.name for worker in stack.workers("emmy")}
    api.stop("emmy", *names)
    wait_until(lambda: not stack.docker("network", "ls", "-q", "--filter", "name=-user-emmy"), STOP_SECONDS)
    return found


def test_a_folder_is_published_on_the_hubs_machine(swarm_stack: SwarmStack) -> None:
    with swarm_stack.kernel("emmy") as emmy:
        said = emmy.execute(PUBLISH_DATA.format(name="digits", content="43"), deadline=CELL_SECONDS)
        assert "digits@2 is published: 1 file, 2 B, sha256:" in said
        verify = ("--entrypoint=python", NOTEBOOK.tag(version()), "-m", "farandole.datasets.versions", "verify")
        manager = swarm_stack.swarm.manager
        found = manager.docker("run", "--rm", "--volume=digits-v2:/data:ro", *verify, "/data").strip()
        assert found == said.split()[7]
    swarm_stack.browser("emmy").stop_notebook()


def test_a_gpu_belongs_to_one_worker_and_a_start_with_two_is_cancelled(
    swarm_stack: SwarmStack, hedy: RemoteKernel
) -> None:
    hedy.execute(f"%cluster start --workers 1 --profile {GPU_CLASS}", deadline=CELL_SECONDS)
    [worker] = swarm_stack.workers("hedy")
    assert worker.engine == swarm_stack.swarm.other
    assert "DOCKER_RESOURCE_GPU=GPU-00000001" in worker.run("env").split()
    hedy.execute("%cluster stop", deadline=CELL_SECONDS)
    with pytest.raises(CellError, match=r"no suitable node \(insufficient resources on 2 nodes\)"):
        hedy.execute(f"%cluster start --workers 2 --profile {GPU_CLASS}", deadline=CELL_SECONDS)
    assert [name for name in swarm_stack.services() if "-server-hedy--" in name] == []
    hedy.execute(f"%cluster start --workers 1 --profile {GPU_CLASS}", deadline=CELL_SECONDS)


def test_an_image_serves_on_a_machine_without_gpus_while_a_gpu_trains(
    swarm_stack: SwarmStack, hedy: RemoteKernel, model_registry: Registry, published: Published
) -> None:
    image = f"{model_registry.there}/lab/{MODEL}@{published.reference.digest}"
    hedy.execute(f"%cluster start --workers 1 --profile {GPU_CLASS}", deadline=CELL_SECONDS)
    assert f"{MODEL}:1" in hedy.execute(f"%serve {image} --profile serving", deadline=CELL_SECONDS)
    infer = f'import farandole as fd; print(fd.Endpoint("{MODEL}").infer(input=[[1.0, 2.0, 3.0, 4.0]])["output"])'
    assert "[[10.]]" in hedy.execute(infer, deadline=CELL_SECONDS)
    worker, endpoint = swarm_stack.workers("hedy")
    assert (worker.engine, endpoint.engine) == (swarm_stack.swarm.other, swarm_stack.swarm.manager)
    assert [mount["Type"] for mount in endpoint.inspect()["Mounts"]] == ["tmpfs"]
    hedy.execute(f"%serve stop {MODEL}", deadline=CELL_SECONDS)
    assert answer_without_a_network(swarm_stack.swarm.manager, image) == "[10.0]"


def answer_without_a_network(engine: SecondEngine, image: str) -> str:
    """Return the answer of a model in a container that has no network, and so neither a hub nor the internet."""
    container = engine.docker("run", "--detach", "--network", "none", image).strip()
    try:
        wait_until(lambda: engine.docker("exec", container, "python", "-c", READY).strip() == "True", STOP_SECONDS)
        return engine.docker("exec", container, "python", "-c", INFER).strip()
    finally:
        engine.docker("rm", "--force", container)


def test_users_do_not_reach_each_others_servers(swarm_stack: SwarmStack, ada: RemoteKernel) -> None:
    ada.execute(f"%%distributed\n{LISTEN}", deadline=CELL_SECONDS)
    servers = swarm_stack.servers("ada").values()
    theirs = [(one, port) for server in servers for one in server.addresses() for port in (8888, LISTEN_PORT)]
    hub = [("hub", 8081), ("proxy", 8000)]
    workers = [(worker.address(), LISTEN_PORT) for worker in swarm_stack.workers("ada")]
    assert set(reached(ada, [*workers, *hub], rank=0)) == {*workers, *hub}
    with swarm_stack.kernel("grace") as grace:
        assert reached(grace, [*theirs, *hub, ("proxy-api", 8001), ("engine", 2375)]) == hub
    swarm_stack.browser("grace").stop_notebook()


def test_servers_on_all_machines_reach_the_nats_server(swarm_stack: SwarmStack, ada: RemoteKernel) -> None:
    assert len({server.engine.name for server in swarm_stack.workers("ada")}) == 2
    for rank in (None, 0, 1):
        assert reached(ada, [STREAMS], rank=rank) == [STREAMS]
    assert "READ secret" in ada.execute(CONNECT + PUBLISH + READ, deadline=CELL_SECONDS)


def test_servers_of_the_swarm_restore_files_from_snapshots(swarm_stack: SwarmStack) -> None:
    check_snapshots(swarm_stack, "grace", "hedy")
    for user in ("grace", "hedy"):
        swarm_stack.browser(user).stop_notebook()


def test_the_doctors_rules_close_machines_homes_and_vxlan_to_users(
    machines: Swarm, swarm_stack: SwarmStack, ada: RemoteKernel
) -> None:
    def reached_ports() -> set[str]:
        server = swarm_stack.notebook("ada")
        return {server.run("python3", "-c", DIAL, str(CABLE[end]), "7946") for end in (1, 2)}

    assert reached_ports() == {"reached"}
    with closed(machines):
        assert reached_ports() == {"refused"}
        ada.execute(f"%%distributed\n{SUM['horovod']}", deadline=CELL_SECONDS)
    assert reached_ports() == {"reached"}


@contextmanager
def closed(machines: Swarm) -> Iterator[None]:
    """Apply to both machines the firewall rules that the doctor prints, and remove the rules at the end."""

    def change(flag: str) -> None:
        for engine in machines.engines:
            iptables = f"nsenter --net=/run/netns/{engine.name} iptables -w 60"
            for command in swarm_commands():
                inside = command.replace("sudo iptables -I", f"{iptables} {flag}")
                subprocess.run(["bash", "-e", "-c", inside], check=True)

    change("-I")
    try:
        yield
    finally:
        change("-D")


# tests/docker/test_stack.py tests the same on one machine.
def test_training_continues_while_the_hub_is_killed_and_started_again(
    swarm_stack: SwarmStack, ada: RemoteKernel
) -> None:
    count = partial(reported, swarm_stack, "ada")
    request = ada.begin(REPORTING)
    wait_until(lambda: count() >= REPORTED, CELL_SECONDS)
    hub = f"{swarm_stack.name}-hub"
    before_it = addresses(swarm_stack, hub)
    swarm_stack.docker("kill", hub)
    before = count()
    wait_until(lambda: count() >= before + REPORTED, CELL_SECONDS)
    swarm_stack.docker("start", hub)
    swarm_stack.wait_ready()
    assert addresses(swarm_stack, hub) == before_it
    swarm_stack.workers("ada")[0].run("touch", "/tmp/enough")
    ada.finish(request, REPORTING, deadline=CELL_SECONDS)
    found = "print(run.status, sorted(set(run.dataframe().step)) == list(range(run.result)))"
    assert ada.execute(found, deadline=60).split() == ["finished", "True"]
    # The notebook server still uses the hub's old address, so this request shows that the address is still valid.
    ada.execute("%cluster scale 3", deadline=CELL_SECONDS)
    # Stop the cluster, because later tests need the machines' resources.
    ada.execute("%cluster stop", deadline=CELL_SECONDS)


def addresses(stack: SwarmStack, container: str) -> list[str]:
    """Return the container's addresses in the users' networks."""
    found = stack.inspect(container)["NetworkSettings"]["Networks"]
    return sorted(network["IPAddress"] for name, network in found.items() if "-user-" in name)


def reported(stack: SwarmStack, user: str) -> int:
    """Return the number of reports that rank 0 has written to disk in all runs of the user."""
    count = "cat /home/user/farandole/runs/*/metrics/rank-0.jsonl 2>/dev/null | wc -l"
    return int(stack.notebook(user).run("sh", "-c", count))


# tests/kubernetes/test_faults.py tests the same behavior on Kubernetes.
def test_a_worker_that_dies_in_an_elastic_run_is_replaced(swarm_stack: SwarmStack, hedy: RemoteKernel) -> None:
    hedy.execute("%cluster start --workers 2 --backend torch", deadline=CELL_SECONDS)
    count = partial(reported, swarm_stack, "hedy")
    before = count()
    request = hedy.begin(ELASTIC)
    wait_until(lambda: count() >= before + REPORTED, CELL_SECONDS)
    victim = swarm_stack.workers("hedy")[1]
    victim.kill()
    wait_until(lambda: back(swarm_stack, "hedy", victim), CELL_SECONDS)
    wait_until(lambda: "joined" in notices_of(swarm_stack, "hedy"), CELL_SECONDS)
    swarm_stack.notebook("hedy").run("touch", ENOUGH)
    hedy.finish(request, ELASTIC, deadline=CELL_SECONDS)
    swarm_stack.notebook("hedy").run("rm", ENOUGH)
    status, size, *notices = hedy.execute(
        "print(run.status, int(run.dataframe()['size'].iloc[-1]), *run.notices)", deadline=60
    ).split()
    assert (status, size) == ("finished", "2")
    assert "rank 1 (worker main-w1) was lost" in " ".join(notices)


def back(stack: SwarmStack, user: str, victim: Server) -> bool:
    """Return whether a new container has replaced the container of the dead worker ``victim``."""
    return any(each.service == victim.service and each.container != victim.container for each in stack.workers(user))


def notices_of(stack: SwarmStack, user: str) -> str:
    """Return the record of the user's newest run, which contains its notices."""
    return stack.notebook(user).run("sh", "-c", "cat $(ls -td /home/user/farandole/runs/*/ | head -1)run.json")


def test_the_home_outlives_the_server_and_is_the_same_on_all_machines(
    swarm_stack: SwarmStack, hedy: RemoteKernel
) -> None:
    hedy.execute("open('kept.txt', 'w').write('still here')", deadline=30)
    hedy.execute("%cluster start --workers 2", deadline=CELL_SECONDS)
    assert {worker.run("cat", "/home/user/kept.txt") for worker in swarm_stack.workers("hedy")} == {"still here"}
    before = swarm_stack.notebook("hedy").container
    swarm_stack.browser("hedy").stop_notebook()
    with swarm_stack.kernel("hedy") as kernel:
        assert kernel.execute("print(open('kept.txt').read())", deadline=30).strip() == "still here"
    assert swarm_stack.notebook("hedy").container != before


# A swarm takes minutes to mark a machine as down.
def test_a_run_continues_without_a_lost_machine(swarm_stack: SwarmStack) -> None:
    machines = swarm_stack.swarm
    # Start rank 0 on the manager. If it ran on the other machine, its last reports would be lost with that machine.
    with machines.resting(), swarm_stack.kernel("lise") as lise:
        lise.execute("%load_ext farandole\n%cluster start --workers 1 --backend torch", deadline=CELL_SECONDS)
    with swarm_stack.kernel("lise") as lise:
        lise.execute("%load_ext farandole\n%cluster attach\n%cluster scale 2", deadline=CELL_SECONDS)
        places = [worker.engine.name for worker in swarm_stack.workers("lise")]
        assert places == [machine.name for machine in machines.engines]
        request = lise.begin(ELASTIC)
        wait_until(lambda: reported(swarm_stack, "lise") >= REPORTED, CELL_SECONDS)
        with machines.apart():
            wait_until(lambda: "joined" in notices_of(swarm_stack, "lise"), CELL_SECONDS)
            swarm_stack.notebook("lise").run("touch", ENOUGH)
            lise.finish(request, ELASTIC, deadline=CELL_SECONDS)
        found = "print(run.status, sorted(set(run.dataframe().step)) == list(range(1, run.result + 1)), *run.notices)"
        status, whole, *notices = lise.execute(found, deadline=60).split()
        assert (status, whole) == ("finished", "True")
        assert "was lost" in " ".join(notices)
        lise.execute("%cluster stop", deadline=CELL_SECONDS)
    wait_until(lambda: not swarm_stack.workers("lise"), STOP_SECONDS)
