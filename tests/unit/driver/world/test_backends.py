"""Tests for how ranks are assigned, and for the environment that each backend needs to form a world."""

import itertools

import pytest
from farandole.driver.workers.worker import WorkerInfo
from farandole.driver.world.backends import BACKENDS, choose_backend
from farandole.driver.world.backends.base import Endpoint, Host, assign_ranks
from farandole.driver.world.backends.horovod import slot
from farandole.exceptions import UsageError, WorkerStartError

ENDPOINT = Endpoint(host="10.0.0.1", port=4711)
LOCAL = Endpoint(host="10.0.0.1", port=4711, interface="lo")


def info(worker, node="n0", address="10.0.0.1"):
    offers = ("horovod", "torch", "none")
    return WorkerInfo(
        worker=worker, ranks=1, profile="cpu", host=f"host-{node}", address=address, node=node, backends=offers
    )


def places(assignments):
    return [(s.rank, s.local_rank, s.local_size, s.cross_rank, s.cross_size) for s in assignments]


def test_on_one_node_all_ranks_are_local_and_use_loopback():
    assignments = assign_ranks([info("c-w0", address=""), info("c-w1", address="127.0.1.1")])
    assert places(assignments) == [(0, 0, 2, 0, 1), (1, 1, 2, 0, 1)]
    assert [s.worker for s in assignments] == ["c-w0", "c-w1"]
    assert {s.address for s in assignments} == {"127.0.0.1"}


def test_uneven_nodes_are_counted_as_mpi_does():
    one, two = info("c-w0"), info("c-w1", "n1", "10.0.0.2")
    assignments = assign_ranks([one, one, two])
    assert places(assignments) == [(0, 0, 2, 0, 2), (1, 1, 2, 0, 1), (2, 0, 1, 1, 2)]
    assert [s.address for s in assignments] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]


def test_ranks_in_containers_of_one_machine_are_counted_together():
    one, two = info("c-w0", "boot-a/1"), info("c-w1", "boot-a/2", "10.0.0.2")
    assignments = assign_ranks([one, one, two, info("c-w2", "boot-b/1", "10.0.0.3")])
    assert [(s.local_size, s.machine_size) for s in assignments] == [(2, 3), (2, 3), (1, 3), (1, 1)]


@pytest.mark.parametrize(("address", "shown"), [("127.0.1.1", "127.0.1.1"), ("", "no address")])
def test_a_host_name_that_peers_cannot_reach_is_refused_with_the_remedy(address, shown):
    with pytest.raises(WorkerStartError, match=rf"'host-n1' of worker c-w1 resolves to {shown}.*/etc/hosts"):
        assign_ranks([info("c-w0"), info("c-w1", "n1", address)])


def test_horovod_gets_its_full_environment_each_time():
    assignment = assign_ranks([info("c-w0"), info("c-w1", "n1", "10.0.0.2")])[1]
    environment = BACKENDS["horovod"]().environment(assignment, ENDPOINT)
    expected = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": "10.0.0.2",
        "HOROVOD_RANK": "1",
        "HOROVOD_SIZE": "2",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "6",
        "HOROVOD_IDLE_CYCLE_TIME": "1000",
        "HOROVOD_ELASTIC": "0",
    }
    assert expected.items() <= environment.items()
    assert "HOROVOD_GLOO_IFACE" not in environment
    assert BACKENDS["horovod"]().environment(assignment, LOCAL)["HOROVOD_GLOO_IFACE"] == "lo"


def test_horovod_slots_agree_with_horovods_own_assignment():
    from horovod.runner.common.util import hosts

    ours = [slot(assignment) for assignment in assign_ranks([info("a")] * 2 + [info("b", "n1", "10.0.0.2")])]
    theirs = hosts.get_host_assignments(hosts.parse_hosts("10.0.0.1:2,10.0.0.2:1"), 3)
    assert ours == [vars(each) for each in theirs]


LAUNCHERS = """
RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR
MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
LT_DEVICES LT_NUM_NODES PL_TRAINER_DEVICES PL_TRAINER_NUM_NODES
"""
"""The variables of torchrun, except the one for errors of NCCL, and those of Lightning."""


def test_torch_gets_the_variables_of_torchrun_and_lightning():
    two = info("c-w1", "n1", "10.0.0.2")
    assignment = assign_ranks([info("c-w0"), info("c-w0"), two, two])[3]
    environment = BACKENDS["torch"]().environment(assignment, LOCAL)
    assert set(environment) == {*LAUNCHERS.split(), "GLOO_SOCKET_IFNAME"}
    places = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711", "GLOO_SOCKET_IFNAME": "lo"}
    numbers = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    lightning = {"PL_TRAINER_DEVICES": "2", "PL_TRAINER_NUM_NODES": "2", "LT_DEVICES": "2", "LT_NUM_NODES": "2"}
    assert (places | numbers | lightning).items() <= environment.items()


def test_nodes_are_numbered_whatever_their_ranks():
    nodes = [info(f"c-w{index}", f"n{index}", f"10.0.0.{index}") for index in range(3)]
    assignments = assign_ranks([nodes[0], nodes[1], nodes[1], nodes[2], nodes[2]])
    assert [(one.local_rank, one.node, one.nodes) for one in assignments] == [
        (0, 0, 3),
        (0, 1, 3),
        (1, 1, 3),
        (0, 2, 3),
        (1, 2, 3),
    ]


def test_backend_none_needs_no_environment():
    backend = BACKENDS["none"]()
    assert backend.environment(assign_ranks([info("c-w0")])[0], ENDPOINT) == {}
    assert backend.host is Host.NONE


def test_the_default_is_the_first_backend_that_all_workers_offer():
    assert choose_backend(None, [("horovod", "torch", "none"), ("torch", "none")]).name == "torch"
    assert choose_backend("none", [("horovod", "torch", "none")]).name == "none"


def test_an_unknown_backend_is_refused_with_a_list():
    with pytest.raises(UsageError, match=r"no backend 'mpi'; choose one of horovod, torch, none"):
        choose_backend("mpi", [("torch",)])


def test_a_misspelled_backend_is_suggested():
    with pytest.raises(UsageError, match=r"none. Did you mean 'horovod'\?"):
        choose_backend("horovd", [("torch",)])


def test_a_backend_that_a_worker_lacks_is_refused():
    with pytest.raises(UsageError, match=r"'horovod'.*not installed on all of them. All of them offer torch, none"):
        choose_backend("horovod", list(itertools.repeat(("torch", "none"), 2)))


def test_a_single_rank_gets_no_rendezvous_address():
    [assignment] = assign_ranks([info("c-w0")])
    environment = BACKENDS["horovod"]().environment(assignment, Endpoint(interface="lo"))
    assert not [name for name in environment if "RENDEZVOUS" in name]
