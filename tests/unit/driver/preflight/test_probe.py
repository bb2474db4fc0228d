"""Tests for the measurements of the preflight check, with a fake group of ranks in which some ranks fail."""

import json

import pytest
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import Reply
from farandole.driver.preflight import probe
from farandole.driver.workers.worker import WorkerInfo
from farandole.exceptions import UsageError


def info(number, node):
    return WorkerInfo(
        worker=f"c-w{number}", ranks=1, profile="", host="h", address=f"10.0.0.{number}", node=node, backends=("none",)
    )


DESCRIBED = {
    "host": "h",
    "versions": {},
    "memory": [5, 10],
    "disks": {},
    "load": 0.0,
    "cpus": 1,
    "gpus": [],
    "own_bytes": 0,
    "error": "",
}


class Group:
    """Fake ranks whose answers are looked up in a table by the name of the called function."""

    def __init__(self, count, clock, **answers):
        self.kernels = list(range(count))
        self.clock = clock
        self.answers = {"describe": DESCRIBED, "open_listener": {"port": 1}, **answers}
        self.asked = []

    async def control(self, calls, *, what, timeout, kernels=None):
        chosen = self.kernels if kernels is None else kernels
        each = [calls] * len(chosen) if isinstance(calls, RankCall) else calls
        return [self._answer(call.function, kernel) for call, kernel in zip(each, chosen, strict=True)]

    def _answer(self, function, kernel):
        self.asked.append((function, kernel))
        answer = self.clock() if function == "clock" else self.answers[function]
        return answer(kernel) if callable(answer) else answer

    async def run(self, cell, kernels, *, together):
        sink = cell.sink
        sink(0, "stream", {"name": "stderr", "text": "a warning\n"}, None)
        for kernel in kernels:
            text = f"a library's greeting\n{json.dumps([[0.003, 0.001, 0.002], [0.1, 0.4, 0.2]])}"
            for piece in (text, "\n"):
                sink(kernel, "stream", {"name": "stdout", "text": piece}, None)
        return [Reply(rank=kernel, worker="w", status="ok", ended=0.0) for kernel in kernels]


@pytest.fixture
def time(monkeypatch):
    """A fake clock of the driver, with round trips of 4, 2 and 6 s. The ranks' clocks are 100 s ahead of it."""

    class Time:
        def __init__(self):
            self.now = 0.0
            self.trips = [4.0, 2.0]

        def time(self):
            return self.now

        def monotonic(self):
            return self.now

        def answer(self):
            trip = self.trips.pop(0) if self.trips else 6.0
            middle = self.now + trip / 2
            self.now += trip
            # Only in the fastest round trip does the rank read its clock exactly halfway.
            return middle + 100 + (0 if trip == 2 else 1)

    time = Time()
    monkeypatch.setattr(probe, "time", time)
    return time


async def look(group, *, nodes="abc", backend="torch", **model):
    infos = [info(number, node) for number, node in zip(group.kernels, nodes, strict=False)]
    return await probe.preflight("c", group, infos, backend, **model)


GOOD = {"dial": {"latency": 0.001, "bytes_per_second": 9e6}, "serve": {"bytes_per_second": 7e6}}


async def test_the_fastest_round_trip_gives_the_clock(time):
    found = await look(Group(1, time.answer))
    assert (found.ranks[0].skew, found.ranks[0].skew_error) == (100.0, 1.0)
    assert (found.links, found.all_reduce) == ((), None)


async def test_the_bandwidth_is_that_of_the_slower_direction(time):
    found = await look(Group(2, time.answer, **GOOD))
    [link] = found.links
    assert (link.first, link.second, link.local, link.latency, link.bandwidth) == (0, 1, False, 0.001, 7e6)


async def test_the_rate_of_an_all_reduce_is_the_median_and_none_without_a_world(time):
    assert (await look(Group(2, time.answer, **GOOD))).all_reduce == 16 * 2**20 / 0.2
    assert (await look(Group(2, time.answer, **GOOD), backend="none")).all_reduce is None


async def test_a_rank_that_cannot_listen_gets_no_connection(time):
    refuse = {"open_listener": lambda kernel: {"error": "not its address"} if kernel == 2 else {"port": 1}}
    group = Group(3, time.answer, **GOOD, **refuse)
    found = await look(group)
    errors = {(link.first, link.second): link.error for link in found.links}
    reason = "rank 2 cannot listen at 10.0.0.2: not its address"
    assert errors == {(0, 1): "", (0, 2): reason, (1, 2): reason}
    assert ("serve", 2) not in group.asked


@pytest.mark.parametrize("end", ["dial", "serve"])
async def test_a_failed_pair_does_not_affect_the_others(time, end):
    odd = {**GOOD, end: lambda kernel: {"error": "timed out"} if kernel == 2 - (end == "dial") else GOOD[end]}
    found = await look(Group(3, time.answer, **odd))
    failed = {(link.first, link.second) for link in found.links if link.error == "timed out"}
    assert failed == ({(1, 2)} if end == "dial" else {(0, 2), (1, 2)})


async def test_no_pair_is_measured_after_the_deadline(time):
    def late(_kernel):
        time.now += probe.LINKS_SECONDS
        return GOOD["serve"]

    found = await look(Group(3, time.answer, dial=GOOD["dial"], serve=late))
    assert [link.error for link in found.links] == ["", "no time was left to try", "no time was left to try"]


FIT = {
    "parameters": 10,
    "gradients": 10,
    "optimizer": 20,
    "capacity": 100,
    "rows": [{"mesh": "{'data': 2}", "ranks": 2, "needs": 60, "fits": True}],
    "advice": "net fits",
}
NET = {"bytes": 8e6, "forward": 0.01, "step": 0.03, "overheads": {"fp16": 0.002}}
ROW = {"mode": "m", "average": 0.1, "bytes_per_step": 5, "step": 0.2, "efficiency": 0.3, "chosen": True}


async def test_the_slowest_rank_and_the_measured_rate_predict_the_speed_of_a_model(time):
    slow = NET | {"step": 0.05, "overheads": {"fp16": 0.004}}
    answers = {"fit_model": FIT, "measure_model": lambda kernel: [NET, slow][kernel], "predict_modes": [ROW]}
    group = Group(2, time.answer, **GOOD, **answers)
    found = await look(group, model="net", batch="x")
    assert (found.model.name, found.model.size, found.model.step) == ("net", 8_000_000, 0.05)
    [mode] = found.modes
    assert (mode.mode, mode.chosen) == ("m", True)
    assert [kernel for function, kernel in group.asked if function == "predict_modes"] == [0]


MISSING = {"error": "the ranks have no variable 'net'"}


async def test_a_wrong_model_is_an_error_of_the_user(time):
    for answers in ({"fit_model": FIT, "measure_model": MISSING}, {"fit_model": MISSING}):
        group = Group(2, time.answer, **GOOD, **answers)
        with pytest.raises(UsageError, match="no variable 'net'"):
            await look(group, model="net", batch="x")


async def test_a_check_of_a_batch_needs_a_model(time):
    group = Group(2, time.answer, **GOOD)
    with pytest.raises(UsageError, match="`%cluster check --batch NAME` needs `--model NAME`, too"):
        await look(group, batch="x")
    assert group.asked == []  # nothing was measured


async def test_the_rank_with_the_least_memory_decides_whether_a_model_fits(time):
    small = FIT | {"capacity": 50, "rows": [FIT["rows"][0] | {"fits": False}], "advice": "net needs a mesh"}
    group = Group(2, time.answer, **GOOD, fit_model=lambda kernel: [FIT, small][kernel])
    found = await look(group, model="net", batch="x")
    assert (found.fit.capacity, found.fit.whole, found.fit.advice) == (50, False, "net needs a mesh")
    assert found.modes == ()  # the modes train the whole model on each rank
    assert (await look(Group(1, time.answer, **GOOD, fit_model=FIT), backend="none", model="net")).fit.whole


async def test_the_speed_of_a_model_needs_a_world(time):
    with pytest.raises(UsageError, match="needs two ranks or more that form a world"):
        await look(Group(2, time.answer, **GOOD, fit_model=FIT), backend="none", model="net", batch="x")
