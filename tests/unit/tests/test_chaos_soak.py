"""Tests that a soak test injects all its faults even if a run fails, and reports all problems."""

import time

import pytest
import torch
from farandole.protocol import Report as RankReport
from farandole.protocol import Status, report_to_json
from farandole.ranks.checkpoints import files
from farandole.ranks.checkpoints.files import Content
from farandole.runs.store import RunStore

from tests.chaos.cell import SAMPLES, Life, Step
from tests.chaos.schedule import schedule
from tests.chaos.site import Site
from tests.chaos.soak import soak
from tests.chaos.summary import summary

WORKERS = 2
AT_ONCE = 10
PATIENCE = 3.0
REASON = "rank 1 (worker w1) was lost, so the run was stopped"


class Pretended(Site):
    """A site with fake runs that make progress at each check. Faults with the given numbers make a run hang or end."""

    kinds = ("rank", "worker", "driver")

    def __init__(self, folder, *, hangs=None, gives_up=None, restarts=None, dies=0, leaves=()):
        self._store = RunStore(folder)
        self._hangs, self._gives_up, self._leaves = hangs, gives_up, list(leaves)
        self._restarts, self._dies = restarts, dies
        self._pids = 0
        self.kept = []
        self.held = []

    def begin(self, name, backend, workers):
        self._run = self._store.create(code="x", backend=backend, size=workers, workers=["w0", "w1"])
        self._steps = [[] for _ in range(workers)]
        self._still, self._outcome = False, None

    def hit(self, fault, ranks):
        assert [step.rank for step in ranks] == list(range(WORKERS))
        if self._dies:
            self._dies -= 1
            raise ProcessLookupError(ranks[0].pid)
        self._still = fault.number == self._hangs
        self._pids += 10 * (fault.number == self._restarts)
        if fault.number == self._gives_up:
            self._end(Status.FAILED, REASON)

    def hold(self, fault):
        self.held.append(fault.kind)

    def heal(self, fault):
        if fault.kind == "disk":
            self._run.notice("The checkpoint of step 20 could not be written")

    def lives(self):
        if not self._still and self._outcome is None:
            self._train()
        return [Life(steps=list(steps), ended=True) for steps in self._steps]

    def run_folder(self):
        self.lives()
        self._run.flush()
        return self._run.folder

    def outcome(self):
        return self._outcome

    def ask_to_end(self):
        for rank in range(WORKERS):
            self._run.add_records(rank, {"kind": "result", "value": {"seen": list(range(SAMPLES))}})
        self._end(Status.FINISHED)

    def give_up(self):
        self._end(Status.FAILED, "stopped by force")

    def left(self):
        return self._leaves

    def keep(self, folder):
        self.kept.append(folder.name)

    def _end(self, status, error=None):
        self._run.finish(status, error)
        self._outcome = self._outcome or f"{status}: {error}"

    def _train(self):
        for _ in range(AT_ONCE):
            number, at = len(self._steps[0]) + 1, time.time()
            for rank, steps in enumerate(self._steps):
                steps.append(
                    Step(
                        rank=rank, size=WORKERS, step=number, at=at, pid=self._pids + rank, parent=1, worker=f"w{rank}"
                    )
                )
                values = {"size": float(WORKERS), "at": at}
                self._run.add_records(rank, report_to_json(RankReport(rank=rank, time=at, step=number, values=values)))
                self._run.add_log(rank, f"step {number} at {at!r}\n")
        if number % (3 * AT_ONCE) == 0:
            self._write_checkpoint(number)

    def _write_checkpoint(self, number):
        folder = self._run.folder / "checkpoints"
        state = {"commits": number, "values": {"step": number}, "parts": {"model": {"weight": torch.ones(3)}}}
        files.write(folder, Content(step=number, state=state, rngs=[{}], seed=0))
        files.retain(folder, 2)


@pytest.fixture
def faults():
    return schedule(1, 3, Pretended.kinds, ["torch"], WORKERS)


def soaked(site, faults, tmp_path):
    said = []
    return soak(site, faults, workers=WORKERS, kept=tmp_path, say=said.append, patience=PATIENCE), said


def test_all_faults_hit_one_run_if_it_survives_them(tmp_path, faults):
    report, said = soaked(site := Pretended(tmp_path), faults, tmp_path)
    assert (report.problems, report.given_up, site.kept) == ([], [], [])
    assert [hit.fault for hit in report.hits] == faults
    assert [line for line in said if "fault" in line] == [f"chaos-0: {fault}" for fault in faults]
    assert "3 faults, 0 runs given up, 0 problems" in summary(report)


def test_a_disk_is_kept_full_until_a_notice_appears(tmp_path):
    faults = schedule(1, 1, ["disk"], ["torch"], WORKERS)
    report, _ = soaked(site := Pretended(tmp_path), faults, tmp_path)
    assert (report.problems, [hit.fault for hit in report.hits]) == ([], faults)
    assert len(site.held) > 1
    assert set(site.held) == {"disk"}


def test_a_hung_run_is_a_problem_and_the_next_faults_hit_another(tmp_path, faults):
    report, said = soaked(site := Pretended(tmp_path, hangs=1), faults, tmp_path)
    assert report.problems == [f"chaos-0: not all ranks train again after {faults[1]} (for 3 s)"]
    assert [hit.fault for hit in report.hits] == faults
    assert [hit.seconds is None for hit in report.hits] == [False, True, False]
    assert f"chaos-1: {faults[2]}" in said
    assert site.kept == ["chaos-0"]


def test_a_run_may_be_given_up_for_a_clear_reason(tmp_path, faults):
    report, _ = soaked(Pretended(tmp_path, gives_up=0), faults, tmp_path)
    assert report.problems == []
    assert report.given_up == [f"chaos-0: failed: {REASON}"]
    assert [hit.fault for hit in report.hits] == faults
    assert f"given up: chaos-0: failed: {REASON}" in summary(report)


def test_a_rank_that_dies_before_its_fault_is_looked_up_again(tmp_path, faults):
    report, _ = soaked(Pretended(tmp_path, dies=1), faults, tmp_path)
    assert report.problems == []
    assert [hit.fault for hit in report.hits] == faults
    report, _ = soaked(Pretended(tmp_path / "twice", dies=2), faults, tmp_path)
    assert report.problems == [f"chaos-0: the target of {faults[0]} was already dead in both attempts"]
    assert [hit.fault for hit in report.hits] == faults


def test_a_killed_driver_may_cost_no_rank(tmp_path, faults):
    [driver] = [fault for fault in faults if fault.kind == "driver"]
    report, _ = soaked(Pretended(tmp_path, restarts=driver.number), faults, tmp_path)
    [problem] = report.problems
    assert problem.startswith(f"chaos-0: {driver} has cost ranks: ")


def test_a_soak_whose_runs_are_all_given_up_has_failed(tmp_path, faults):
    report, _ = soaked(Pretended(tmp_path, gives_up=faults[2].number), faults, tmp_path)
    assert report.problems == ["1 of 1 runs were given up"]


def test_remains_of_a_run_are_a_problem(tmp_path, faults):
    report, _ = soaked(Pretended(tmp_path, leaves=["process 7"]), faults, tmp_path)
    assert report.problems == ["chaos-0: left behind: process 7"]
    assert "PROBLEM chaos-0: left behind: process 7" in summary(report)
