"""Tests for the faults and outliers that the preflight check finds in fake measurements, and for its messages."""

import platform
from dataclasses import replace

import farandole
import pytest
from farandole.driver.preflight.figures import DriverFigures, Gpu, Link, RankFigures, Room, driver_figures, rank_figures
from farandole.driver.preflight.fit import model_fit
from farandole.driver.preflight.judge import driver_faults, driver_notes, machine_faults
from farandole.driver.preflight.modes import AllReduce, Mode, ModelFigures
from farandole.driver.preflight.network import endpoints, link_faults, rounds
from farandole.driver.preflight.result import Preflight

GIB = 2**30
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "horovod": "0.28.1", "farandole": "0.1.0"}
DRIVER = DriverFigures(host="lab", versions={"python": "3.11.9", "torch": "2.13.0", "farandole": "0.1.0"})
GPU = Gpu(
    uuid="GPU-0",
    name="H200",
    driver="580.1",
    celsius=40,
    ecc_errors=0,
    slowed_by=(),
    memory=Room(free=139 * GIB, total=140 * GIB),
)


def figures(number, **changes):
    rank = RankFigures(
        rank=number,
        worker=f"c-w{number}",
        host=f"host{number}",
        address=f"10.0.0.{number}",
        versions=VERSIONS,
        memory=Room(free=8 * GIB, total=16 * GIB),
        disks={"home (/home/ada)": Room(free=50 * GIB, total=100 * GIB)},
        load=0.5,
        cpus=4,
        skew=0.0,
        skew_error=0.01,
    )
    return replace(rank, **changes)


def ranks(count, odd=None, **changes):
    return [figures(number, **(changes if number == odd else {})) for number in range(count)]


def with_gpu(number, **changes):
    return figures(number, gpus=(replace(GPU, uuid=f"GPU-{number}", **changes),))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_equal_ranks_have_no_fault(count):
    assert machine_faults(ranks(count)) == []
    assert machine_faults([with_gpu(number) for number in range(count)]) == []


def test_the_rank_with_another_version_is_named_first():
    [fault] = machine_faults(ranks(4, 2, versions={**VERSIONS, "torch": "2.12.0"}))
    assert fault.startswith("torch: rank 2 has 2.12.0, ranks 0-1, 3 have 2.13.0. Start all workers from one image")


def test_a_missing_package_counts_as_another_version():
    [fault] = machine_faults(
        [figures(0), figures(1, versions={"python": "3.11.7", "torch": "2.13.0", "farandole": "0.1.0"})]
    )
    assert fault.startswith("horovod: rank 1 has none, rank 0 has 0.28.1.")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": Room(free=GIB, total=16 * GIB)}, "has 1.0 GiB of 16.0 GiB of memory free"),
        ({"disks": {"home (/h)": Room(free=GIB, total=100 * GIB)}}, "has 1.0 GiB of 100.0 GiB free for home (/h)"),
        ({"load": 9.0}, "has a load of 9.0 on 4 CPUs"),
        ({"skew": 2.0}, "the clock of worker c-w1 (host host1) is 2.0 s ahead of the notebook's (± 0.010 s)"),
        ({"skew": -2.0}, "is 2.0 s behind the notebook's"),
        ({"gpu_error": "nvidia-smi failed: no driver"}, "rank 1 (worker c-w1): nvidia-smi failed: no driver."),
    ],
)
def test_a_shortage_of_one_rank_is_one_fault_with_its_name(changes, words):
    # Add a small offset to all clocks, because real clocks always differ slightly.
    [fault] = machine_faults([replace(rank, skew=rank.skew + 0.001) for rank in ranks(3, 1, **changes)])
    assert words in fault
    assert "c-w1" in fault
    assert fault.endswith(".")


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": Room(free=2 * GIB, total=16 * GIB)},
        {"disks": {"home (/h)": Room(free=6 * GIB, total=100 * GIB)}},
        {"load": 5.9},
        {"skew": 0.45},
        {"skew": 1.4, "skew_error": 1.0},
    ],
)
def test_values_within_the_limits_are_not_a_fault(changes):
    assert machine_faults(ranks(3, 1, **changes)) == []


def test_ranks_of_one_worker_share_its_faults():
    both = [figures(number, worker="c-w0", load=9.0, skew=3.0) for number in (0, 1)]
    assert len(machine_faults(both)) == 2


def test_if_all_workers_agree_the_notebooks_clock_is_wrong():
    [fault] = machine_faults([figures(number, skew=7.0) for number in range(3)])
    assert fault.startswith("the notebook's clock is 7.0 s behind the workers'.")
    [ours, theirs] = machine_faults([*(figures(number, skew=7.0) for number in range(3)), figures(3)])
    assert ours.startswith("the notebook's clock is 7.0 s behind")
    assert theirs.startswith("the clock of worker c-w3 (host host3) is 7.0 s behind the other workers'")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ecc_errors": 3}, "GPU H200 GPU-1 of worker c-w1 (host host1) has had 3 uncorrected memory errors"),
        ({"slowed_by": ("heat",), "celsius": 95}, "is slowed down by heat"),
        ({"celsius": 95}, "has 95 °C"),
        (
            {"memory": Room(free=100 * GIB, total=140 * GIB)},
            "other processes use 40.0 GiB of 140.0 GiB of the GPU memory of worker c-w1",
        ),
        ({"name": "T4"}, "GPUs: rank 1 has 1 x T4, ranks 0, 2 have 1 x H200."),
    ],
)
def test_a_faulty_gpu_is_one_fault(changes, words):
    [fault] = machine_faults([with_gpu(0), with_gpu(1, **changes), with_gpu(2)])
    assert words in fault


def test_gpu_memory_of_the_clusters_ranks_is_not_foreign():
    gpu = replace(GPU, memory=Room(free=80 * GIB, total=140 * GIB))
    assert machine_faults([figures(number, gpus=(gpu,), gpu_own=30 * GIB) for number in (0, 1)]) == []


def test_a_gpu_without_readings_is_not_a_fault():
    silent = replace(GPU, celsius=None, ecc_errors=None, memory=Room(free=0, total=0))
    assert machine_faults([figures(0, gpus=(silent,))]) == []


def test_one_rank_of_each_worker_is_measured_or_all_of_a_single_one():
    assert endpoints(["a", "a", "b", "c", "c"]) == [0, 2, 3]
    assert endpoints(["a", "a", "a"]) == [0, 1, 2]
    assert endpoints(["a"]) == [0]


@pytest.mark.parametrize("nodes", ["abcdefgh", "aabbccdd", "aaaa", "abbb", "a"])
def test_each_pair_is_measured_once_and_each_node_once_per_round(nodes):
    planned = rounds(range(len(nodes)), dict(enumerate(nodes)))
    pairs = [pair for turn in planned for pair in turn]
    assert sorted(pairs) == [(i, j) for i in range(len(nodes)) for j in range(i + 1, len(nodes))]
    for turn in planned:
        busy = [node for pair in turn for node in {nodes[rank] for rank in pair}]
        assert len(busy) == len(set(busy))


def links(count, odd=(), *, local=False, **changes):
    """Return links between all pairs of ranks, as on gigabit Ethernet. ``changes`` apply to the pairs in ``odd``."""
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    usual = {"latency": 0.0001, "bandwidth": 118e6, "local": local}
    return [Link(first=i, second=j, **(usual | (changes if (i, j) in odd else {}))) for i, j in pairs]


NAMES = [f"rank {number}" for number in range(5)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_equal_links_have_no_fault(count):
    assert link_faults(links(count), NAMES) == []


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"latency": 0.02}, "a latency of 20 ms (0.1 ms is usual)"),
        ({"bandwidth": 11e6}, "a bandwidth of 10 MiB/s (113 MiB/s is usual)"),
    ],
)
def test_a_slow_pair_and_a_rank_with_only_slow_links_are_named(count, changes, words):
    [pair] = link_faults(links(count, [(0, 1)], **changes), NAMES)
    assert pair.startswith(f"rank 0 and rank 1 have {words} between them. Check its cable")
    last = count - 1
    [rank] = link_faults(links(count, [(other, last) for other in range(last)], **changes), NAMES)
    assert rank.startswith(f"rank {last} has {words} to all others. Check its cable")


@pytest.mark.parametrize("changes", [{"latency": 0.0009}, {"bandwidth": 40e6}])
def test_slightly_slower_is_not_a_fault(changes):
    assert link_faults(links(3, [(0, 1)], **changes), NAMES) == []


def test_links_within_a_node_are_not_compared_with_links_between_nodes():
    quick = Link(first=3, second=4, local=True, latency=0.00001, bandwidth=5e9)
    assert link_faults([*links(3), quick], NAMES) == []
    slower = Link(first=2, second=3, local=True, latency=0.00002, bandwidth=1.2e9)
    assert link_faults([quick, replace(quick, second=2), slower], NAMES) == []


def test_a_failed_link_is_named_with_the_reason():
    [fault] = link_faults(links(3, [(1, 2)], latency=None, bandwidth=None, error="timed out"), NAMES)
    assert fault.startswith("rank 1 and rank 2 did not reach each other: timed out. Make each host's name resolve to")


def preflight(**changes):
    usual = {"name": "c", "backend": "torch", "ranks": tuple(ranks(2)), "links": tuple(links(2)), "all_reduce": 4e8}
    return Preflight(**(usual | {"driver": DRIVER} | changes))


def test_a_cluster_without_faults_is_shown_with_its_figures():
    lines = str(preflight()).splitlines()
    assert lines[0] == "cluster c, backend torch"
    assert lines[2].split()[:8] == ["driver", "-", "lab", "-", "3.11.9", "2.13.0", "-", "0.1.0"]
    assert lines[3].split()[:8] == ["0", "c-w0", "host0", "10.0.0.0", "3.11.7", "2.13.0", "0.28.1", "0.1.0"]
    assert lines[6].split() == ["0", "-", "1", "0.1", "ms", "113", "MiB/s"]
    assert lines[-2:] == ["all-reduce of 16 MiB on 2 ranks: 381 MiB/s", "no fault found"]
    assert repr(preflight()) == str(preflight())


def test_the_speed_of_a_model_is_a_table():
    mode = Mode(mode='sync="step"', average=0.4, bytes_per_step=60_000_000, step=0.45, efficiency=0.11, chosen=False)
    local = replace(mode, mode="sync=fd.sync.local(every=8)", bytes_per_step=3_700_000, efficiency=0.96, chosen=True)
    found = preflight(model=ModelFigures(name="net", size=44_700_000, step=0.048), modes=(mode, local))
    lines = str(found).splitlines()
    assert lines[-5] == "net: 43 MiB of gradients, 48 ms for a step without a network"
    assert lines[-3].split() == ['sync="step"', "400", "ms", "57", "MiB", "450", "ms", "0.11"]
    assert lines[-2].startswith("sync=fd.sync.local(every=8) (auto)  ")
    assert lines[-1] == "no fault found"
    assert "<td>sync=fd.sync.local(every=8) (auto)</td>" in found.html()


def test_the_time_of_a_sum_is_latency_and_a_time_for_each_byte():
    measured = AllReduce(latency=0.002, large=0.202)
    sizes = (0, 8 * 2**20, 16 * 2**20, 32 * 2**20)
    assert [measured.seconds(size) for size in sizes] == pytest.approx([0.002, 0.102, 0.202, 0.402])
    # A small sum that happened to take longer than the large one.
    assert AllReduce(latency=0.3, large=0.2).seconds(1) == 0.2


def test_numbers_and_their_units_stay_on_one_line():
    page = preflight().html()
    assert "<td>0.1&nbsp;ms</td><td>113&nbsp;MiB/s</td>" in page
    assert "&nbsp;of" not in page


def test_faults_come_last_and_are_counted():
    odd = preflight(ranks=tuple(ranks(2, 1, load=9.0)), all_reduce=None, all_reduce_error="it failed on rank 1")
    lines = str(odd).splitlines()
    assert "load of 9.0" in lines[-3]
    assert lines[-2:] == [
        "an all-reduce failed: it failed on rank 1. If no link is at fault, try the other backend.",
        "2 faults",
    ]
    assert preflight(ranks=tuple(ranks(2, 1, load=9.0))).html().endswith("<p><b>1 fault</b></p>")


def test_html_tables_escape_names_of_hosts():
    page = preflight(ranks=tuple(ranks(2, 1, host="<b>evil"))).html()
    assert page.count("<table>") == 2
    assert "&lt;b&gt;evil" in page
    assert "<b>evil" not in page


def test_a_model_has_a_table_of_the_meshes_and_an_advice():
    rows = [
        {"mesh": "{'data': 4}", "ranks": 4, "needs": 3 * GIB, "fits": False},
        {"mesh": "{'shard': 4}", "ranks": 4, "needs": GIB, "fits": True},
    ]
    sizes = {"parameters": GIB, "gradients": GIB, "optimizer": 2 * GIB, "capacity": 2 * GIB}
    found = preflight(fit=model_fit("net", {**sizes, "rows": rows, "advice": "The smallest mesh is {'shard': 4} < 5."}))
    lines = str(found).splitlines()
    first = lines.index("net: 1.0 GiB of parameters, 1.0 GiB of gradients, 2.0 GiB of optimizer state with Adam")
    assert [line.split("  ")[0] for line in lines[first + 1 : first + 4]] == ["mesh", "none", "{'shard': 4}"]
    assert lines[first + 2].split() == ["none", "4", "3.0", "GiB", "of", "2.0", "GiB", "no"]
    assert lines[first + 3].endswith("yes")
    assert lines[first + 4] == "The smallest mesh is {'shard': 4} < 5."
    assert "1.0&nbsp;GiB of 2.0&nbsp;GiB" in found.html()
    assert "&lt; 5." in found.html()


def test_the_slowest_of_many_pairs_are_shown():
    many = preflight(ranks=tuple(ranks(8)), links=tuple(links(8, [(2, 5)], latency=0.5)))
    lines = str(many).splitlines()
    assert lines[12].split()[:5] == ["2", "-", "5", "500", "ms"]
    assert "... and 16 faster pairs" in lines


def test_a_ranks_answer_becomes_figures():
    gpu = {
        "uuid": "GPU-1",
        "name": "T4",
        "driver": "580.1",
        "celsius": None,
        "ecc_errors": 1,
        "slowed_by": ["heat"],
        "used_bytes": 3,
        "total_bytes": 10,
    }
    answer = {
        "host": "h",
        "versions": {"python": "3.12.1"},
        "memory": [1, 2],
        "disks": {"home": [3, 4]},
        "load": 0.1,
        "cpus": 2,
        "gpus": [gpu],
        "own_bytes": 5,
        "error": "",
    }
    rank = rank_figures(answer, rank=1, worker="w", address="a", skew=0.1, skew_error=0.2)
    assert rank.versions == {"python": "3.12.1", "driver": "580.1"}
    assert rank.gpus[0].memory == Room(free=7, total=10)
    assert (rank.memory.share, rank.disks["home"].free, rank.gpu_own) == (0.5, 3, 5)


@pytest.mark.parametrize("python", ["3.12.1", "3.13.0"])
def test_another_python_of_the_driver_is_a_fault(python):
    driver = replace(DRIVER, versions=DRIVER.versions | {"python": python})
    [fault] = preflight(driver=driver).faults
    assert fault.startswith(f"python: the notebook has {python}, ranks 0-1 have 3.11.7. Functions and classes cannot")
    assert driver_faults(DRIVER, ranks(2)) == []


def test_another_release_of_the_driver_is_a_fault():
    driver = replace(DRIVER, versions=DRIVER.versions | {"farandole": "0.2.0", "torch": "none"})
    [fault] = driver_faults(driver, ranks(2, 1, versions={**VERSIONS, "farandole": "0.3.0"}))
    assert fault.startswith("farandole: the notebook has 0.2.0, rank 1 has 0.3.0, rank 0 has 0.1.0. Start both")


def test_another_python_outside_the_hub_is_a_note():
    laptop = replace(DRIVER, versions=DRIVER.versions | {"python": "3.13.0"}, outside=True)
    found = preflight(driver=laptop)
    assert found.faults == ()
    note = "python: the notebook has 3.13.0, ranks 0-1 have 3.11.7. Cells travel as text, so this is no fault. Push and"
    assert str(found).splitlines()[-2].startswith(note)
    assert str(found).splitlines()[-1] == "no fault found"
    assert note in found.html()
    assert driver_notes(replace(DRIVER, outside=True), ranks(2)) == []
    assert driver_notes(replace(laptop, outside=False), ranks(2)) == []


def test_another_release_outside_the_hub_is_a_fault_with_the_workers_version():
    laptop = replace(DRIVER, versions=DRIVER.versions | {"farandole": "0.2.0"}, outside=True)
    [fault] = driver_faults(laptop, ranks(3, 1, versions={**VERSIONS, "farandole": "0.3.0"}))
    assert fault.startswith("farandole: the notebook has 0.2.0, rank 1 has 0.3.0, ranks 0, 2 have 0.1.0. ")
    assert fault.endswith("Install the wheel of release 0.1.0 on this machine, with `pip install FILE`.")


@pytest.mark.parametrize(("package", "version"), [("python", "3.12.1"), ("farandole", "0.2.0")])
def test_one_rank_that_differs_from_the_driver_is_one_fault(package, version):
    odd = preflight(ranks=tuple(ranks(2, 1, versions={**VERSIONS, package: version})))
    [fault] = odd.faults
    assert fault.startswith(f"{package}: rank 1 has {version}, rank 0 has ")


def test_the_figures_of_the_driver_are_those_of_this_process():
    figures = driver_figures()
    assert figures.versions["python"] == platform.python_version()
    assert figures.versions["farandole"] == farandole.__version__
    assert not figures.outside
    assert driver_figures(outside=True).outside
