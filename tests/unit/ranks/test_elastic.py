"""Tests for fd.elastic and a rank's membership, within one process. A second thread acts as the driver."""

import threading
import time

import pytest
import torch
from farandole.driver.options import Elastic
from farandole.exceptions import DeadlineError, UsageError
from farandole.ranks import control, run
from farandole.ranks.checkpoints import memory_checkpoint
from farandole.ranks.checkpoints.checkpoint import checkpoint
from farandole.ranks.elastic import elastic, scale_rates
from farandole.ranks.metrics import reporter
from farandole.ranks.state.state import state as fd_state
from farandole.ranks.training.prepare import prepare
from farandole.ranks.world import membership
from farandole.ranks.world.membership import ElasticClient, WorldChange

ALONE = {"FARANDOLE_RANK": "0", "FARANDOLE_SIZE": "1", "FARANDOLE_BACKEND": "none", "FARANDOLE_OUTSIDE": ""}


@pytest.fixture
def member(monkeypatch):
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    one = membership.current()
    one.begin("none")
    yield one
    one.end()


def make_state():
    model = torch.nn.Linear(2, 1)
    return fd_state(model, torch.optim.SGD(model.parameters(), lr=0.1), step=0)


def form_when_it_waits(member, environment=ALONE):
    """Let the rank form a world as soon as it is waiting for one."""

    def press():
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                member.form(dict(environment))
            except DeadlineError:
                time.sleep(0.005)
            else:
                return

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def commits(state, count):
    for _ in range(count):
        state.step += 1
        state.commit()


def test_outside_an_elastic_run_the_loop_is_called_once():
    state = make_state()
    calls = []
    assert elastic(lambda given, more: calls.append(given) or more)(state, 5) == 5
    assert calls == [state]


def test_after_a_failed_collective_the_loop_continues_from_the_last_commit_in_the_next_world(member):
    state, begun = make_state(), []
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        begun.append(state.step)
        commits(state, 2)
        if len(begun) == 1:
            state.step = 99
            state.optimizer.param_groups[0]["params"][0].grad = torch.ones(1, 2)
            raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer")
        return state.step

    assert train(state) == 4
    former.join()
    assert begun == [0, 2]
    assert state.optimizer.param_groups[0]["params"][0].grad is None


def test_an_error_of_the_users_code_is_raised(member):
    @elastic
    def train(_state):
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        train(make_state())


def test_any_error_is_blamed_on_the_world_once_it_is_marked_broken(member):
    tries = []
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        tries.append(state.step)
        if len(tries) == 1:
            member.mark_world_broken()
            raise ValueError("Default process group is gone")

    train(make_state())
    former.join()
    assert tries == [0, 0]


@pytest.mark.parametrize("ours", [True, False])
def test_an_interrupt_comes_from_the_user_unless_the_driver_announced_it(member, ours):
    tries = []
    former = form_when_it_waits(member) if ours else None

    @elastic
    def train(state):
        tries.append(state.step)
        if len(tries) == 1:
            member.mark_world_broken(interrupted=ours)
            raise KeyboardInterrupt

    if ours:
        train(make_state())
        former.join()
        assert tries == [0, 0]
    else:
        with pytest.raises(KeyboardInterrupt):
            train(make_state())


def test_an_interrupt_during_a_restore_repeats_the_restore(member):
    class Slow:
        loads = 0

        def state_dict(self):
            return {}

        def load_state_dict(self, _state):
            Slow.loads += 1
            if Slow.loads == 1:
                member.mark_world_broken(interrupted=True)
                raise KeyboardInterrupt

    state, tries = fd_state(slow=Slow(), step=0), []
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        tries.append(state.step)
        if len(tries) == 1:
            state.step = 5
            raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer")

    train(state)
    former.join()
    assert (tries, Slow.loads) == ([0, 0], 2)


def test_a_second_loop_in_one_run_is_refused(member):
    train = elastic(lambda state: state.step)
    state = make_state()
    assert train(state) == 0
    with pytest.raises(UsageError, match="put all epochs into one function under @fd.elastic"):
        train(state)
    member.begin("none")
    assert train(state) == 0


def test_without_a_copy_new_ranks_continue_from_the_newest_checkpoint(member, tmp_path, monkeypatch):
    notices = []
    monkeypatch.setattr(run, "notice", lambda text, **_: notices.append(text))
    monkeypatch.setattr(reporter.current(), "run", "r")
    run.current().begin(str(tmp_path), "")
    earlier = make_state()
    made = checkpoint(earlier, every=1)
    for _ in range(3):
        commits(earlier, 1)
        made.wait()
    monkeypatch.setenv("FARANDOLE_OUTSIDE", "1")
    member.begin("none")
    state, begun = make_state(), []
    checkpoint(state, every=1)
    former = form_when_it_waits(member)
    elastic(lambda state: begun.append(state.step))(state)
    former.join()
    run.current().end()
    assert begun == [3]
    assert torch.equal(state.model.weight, earlier.model.weight)
    assert notices == ["resumed from the checkpoint of step 3: no other rank has a newer commit"]


def test_a_new_rank_that_fails_before_it_joins_leaves_the_copies_to_the_next_one(member, tmp_path, monkeypatch):
    monkeypatch.setattr(memory_checkpoint, "copies_folder", lambda: tmp_path)
    monkeypatch.setattr(reporter.current(), "run", "r")

    def attempt(state):
        try:
            elastic(lambda state: commits(state, 1) if state.step < 3 else None)(state)
        finally:
            run.current().end()
            member.begin("none")

    earlier = make_state()
    commits(earlier, 3)
    memory_checkpoint.MemoryCheckpoint("r").save(earlier, None)
    monkeypatch.setenv("FARANDOLE_OUTSIDE", "1")
    member.begin("none")
    refused = make_state()
    run.current().on_catch_up(refused, (tmp_path / "missing").read_bytes)
    with pytest.raises(FileNotFoundError):
        attempt(refused)
    assert len(list(tmp_path.iterdir())) == 1
    joined = make_state()
    former = form_when_it_waits(member)
    attempt(joined)
    former.join()
    assert (joined.step, list(tmp_path.iterdir())) == (3, [])


def test_ranks_leave_at_the_announced_commit_and_keep_its_state(member):
    state, begun = make_state(), []
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        begun.append(state.step)
        if len(begun) == 1:
            member.pause_at_next_commit()
            member.leave_at_commit(3)
            try:
                commits(state, 10)
            except Exception as exc:  # user code may handle a failed batch like this
                raise AssertionError("an `except Exception` caught the exception for leaving") from exc

    train(state)
    former.join()
    assert begun == [0, 3]


def test_an_epoch_continues_in_the_middle_after_ranks_leave(member):
    data = torch.utils.data.DataLoader(torch.arange(40), batch_size=4, shuffle=True)
    _, _, loader = prepare(loader=data)
    state = fd_state(loader, step=0, seen=[])
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        for ids in loader:
            if state.step == 2 and len(state.seen) == 8:
                member.leave_at_commit(3)
            state.seen = state.seen + ids.tolist()
            commits(state, 1)

    train(state)
    former.join()
    assert (state.step, sorted(state.seen)) == (10, list(range(40)))


def test_a_rank_that_left_without_the_others_releases_them(member, monkeypatch):
    sent, abandoned = [], []
    monkeypatch.setattr(membership, "PEERS_SECONDS", 0.05)
    monkeypatch.setattr(membership, "abandon_world", lambda: abandoned.append(len(sent)))
    monkeypatch.setattr(reporter, "send", sent.append)
    rank = threading.Thread(target=member.wait_for_world, args=(make_state(),), kwargs={"failed": False})
    rank.start()
    wait_until(lambda: abandoned and member.waits)
    member.form(dict(ALONE))
    rank.join(60)
    assert abandoned == [1]
    assert [(news["formed"], news["failed"]) for news in sent] == [(False, False), (False, True), (True, False)]
    assert sent[1]["why"] == "rank 0 waited 0.05 s for the other ranks to leave the world"


def test_a_rank_waits_for_a_lost_driver_overnight_and_then_gives_up(member, monkeypatch):
    assert membership.WORLD_SECONDS >= 16 * 3600
    monkeypatch.setattr(membership, "WORLD_SECONDS", 0.05)
    with pytest.raises(
        DeadlineError, match="rank 0 waited 0.05 s for a new world and received nothing from its driver"
    ):
        member.wait_for_world(make_state(), failed=True)
    assert not member.waits


def test_a_new_rank_and_one_whose_world_failed_wait_without_another_message(member, monkeypatch):
    sent = []
    monkeypatch.setattr(membership, "PEERS_SECONDS", 0.05)
    monkeypatch.setattr(reporter, "send", sent.append)
    for outside, failed in (("1", False), ("", True)):
        monkeypatch.setenv("FARANDOLE_OUTSIDE", outside)
        rank = threading.Thread(target=member.wait_for_world, args=(make_state(),), kwargs={"failed": failed})
        rank.start()
        wait_until(lambda: member.waits)
        time.sleep(0.3)
        member.form(dict(ALONE))
        rank.join(60)
    assert [news["failed"] for news in sent if not news["formed"]] == [False, True]


def test_a_commit_waits_until_the_commit_to_leave_at_is_known():
    member, state = ElasticClient(), make_state()
    member.begin("none")
    state.on_commit(member.at_commit)
    commits(state, 1)
    assert member.pause_at_next_commit() == 1
    word = threading.Timer(0.05, member.leave_at_commit, [3])
    word.start()
    commits(state, 1)
    word.join()
    with pytest.raises(WorldChange):
        commits(state, 1)
    assert state.step == 3


def test_a_rank_that_does_not_wait_joins_no_world(member):
    with pytest.raises(DeadlineError, match="rank 0 is not waiting for a world"):
        member.form(ALONE)


def test_a_rank_reports_whether_it_waits_for_a_world(member, monkeypatch):
    forms, may_end, state = threading.Event(), threading.Event(), make_state()

    def form(_environment):
        forms.set()
        assert may_end.wait(60)

    monkeypatch.setattr(membership, "form_world", form)
    assert not control.waits()
    rank = threading.Thread(target=member.wait_for_world, args=(state,), kwargs={"failed": False})
    rank.start()
    wait_until(control.waits)
    member.form(dict(ALONE))
    assert forms.wait(60)
    assert not control.waits()
    may_end.set()
    rank.join(60)
    assert not control.waits()


def test_learning_rates_and_initial_rates_of_schedulers_are_scaled():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    scale_rates(fd_state(model, optimizer, scheduler), 1.5)
    [group] = optimizer.param_groups
    assert [group["lr"], group["initial_lr"], *scheduler.base_lrs] == pytest.approx([0.15] * 3)


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4, total_steps=20)


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=0.05)


def triangle(optimizer):
    return torch.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.4, step_size_up=5)


def warm_then_cosine(optimizer):
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=4)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine(optimizer)], milestones=[4])


@pytest.mark.parametrize("schedule", [one_cycle, cosine, triangle, warm_then_cosine])
def test_a_schedule_continues_with_the_new_rates(schedule):
    rates = {}
    for factor in (1.0, 0.5):
        optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1, momentum=0.9)
        scheduler = schedule(optimizer)
        for step in range(16):
            if step == 3:
                scale_rates(fd_state(optimizer, scheduler), factor)
            optimizer.step()
            scheduler.step()
            rates.setdefault(factor, []).append(scheduler.get_last_lr()[0])
    assert rates[0.5] == pytest.approx([*rates[1.0][:3], *(rate / 2 for rate in rates[1.0][3:])])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_ranks": 0}, "at least 1 rank"),
        ({"min_ranks": 3, "max_ranks": 2}, "--max-ranks 2 is less than --min-ranks 3"),
        ({"lr_rule": "square"}, "no learning-rate rule 'square'; choose one of none, linear"),
        ({"lr_rule": "liner"}, r"Did you mean 'linear'\?"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Elastic(**options)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"code": "train(state)"}, "put `@fd.elastic` above"),
        ({"backend": "none"}, "does not form a world"),
        ({"size": 1}, "has 1 rank, fewer than --min-ranks 2"),
        ({"size": 5}, "has 5 ranks, more than --max-ranks 4"),
    ],
)
def test_cells_and_clusters_that_cannot_be_elastic_are_refused(cell, message):
    options = Elastic(min_ranks=2, max_ranks=4)
    fits = {"code": "fd.elastic(train)(state)", "size": 3, "backend": "torch"}
    options.check(**fits)
    with pytest.raises(UsageError, match=message):
        options.check(**fits | cell)
