"""fd.elastic and a rank's membership, alone in a process; the driver's words come from a second thread."""

import threading
import time

import pytest
import torch
from farandole.driver.elastic import Elastic
from farandole.exceptions import DeadlineError, UsageError
from farandole.ranks import control, membership
from farandole.ranks.elastic import elastic, scale_rates
from farandole.ranks.membership import Membership, WorldChange
from farandole.ranks.prepare import prepare
from farandole.ranks.state import state as fd_state

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
    """Let the rank form a world as soon as it waits for one."""

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


def test_a_failed_collective_goes_back_to_the_last_commit_and_on_in_the_next_world(member):
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


def test_an_error_of_the_users_own_passes(member):
    @elastic
    def train(_state):
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        train(make_state())


def test_any_error_is_the_worlds_once_the_driver_says_it_is_broken(member):
    tries = []
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        tries.append(state.step)
        if len(tries) == 1:
            member.say_broken()
            raise ValueError("Default process group is gone")

    train(make_state())
    former.join()
    assert tries == [0, 0]


@pytest.mark.parametrize("ours", [True, False])
def test_an_interrupt_is_the_users_unless_the_driver_announced_it(member, ours):
    tries = []
    former = form_when_it_waits(member) if ours else None

    @elastic
    def train(state):
        tries.append(state.step)
        if len(tries) == 1:
            member.say_broken(interrupted=ours)
            raise KeyboardInterrupt

    if ours:
        train(make_state())
        former.join()
        assert tries == [0, 0]
    else:
        with pytest.raises(KeyboardInterrupt):
            train(make_state())


def test_ranks_part_at_the_commit_that_was_said_and_keep_its_state(member):
    state, begun = make_state(), []
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        begun.append(state.step)
        if len(begun) == 1:
            member.hold()
            member.part_at(3)
            try:
                commits(state, 10)
            except Exception as exc:  # what a user's loop may do with a failed batch
                raise AssertionError("an `except Exception` caught the parting") from exc

    train(state)
    former.join()
    assert begun == [0, 3]


def test_an_epoch_goes_on_in_its_middle_where_ranks_part(member):
    data = torch.utils.data.DataLoader(torch.arange(40), batch_size=4, shuffle=True)
    _, _, loader = prepare(loader=data)
    state = fd_state(loader, step=0, seen=[])
    former = form_when_it_waits(member)

    @elastic
    def train(state):
        for ids in loader:
            if state.step == 2 and len(state.seen) == 8:
                member.part_at(3)
            state.seen = state.seen + ids.tolist()
            commits(state, 1)

    train(state)
    former.join()
    assert (state.step, sorted(state.seen)) == (10, list(range(40)))


def test_a_commit_waits_for_the_word_where_to_part():
    member, state = Membership(), make_state()
    member.begin("none")
    state.on_commit(member.at_commit)
    commits(state, 1)
    assert member.hold() == 1
    word = threading.Timer(0.05, member.part_at, [3])
    word.start()
    commits(state, 1)
    word.join()
    with pytest.raises(WorldChange):
        commits(state, 1)
    assert state.step == 3


def test_a_rank_that_does_not_wait_joins_nothing(member):
    with pytest.raises(DeadlineError, match="rank 0 does not wait for a world"):
        member.form(ALONE)


def test_a_rank_says_whether_it_waits_for_a_world(member, monkeypatch):
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


def test_rates_follow_with_those_that_a_scheduler_begins_from():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    scale_rates(fd_state(model, optimizer, scheduler), 1.5)
    [group] = optimizer.param_groups
    assert [group["lr"], group["initial_lr"], *scheduler.base_lrs] == pytest.approx([0.15] * 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_ranks": 0}, "at least 1 rank"),
        ({"min_ranks": 3, "max_ranks": 2}, "--max-ranks 2 is less than --min-ranks 3"),
        ({"lr_rule": "square"}, "no learning-rate rule 'square'; choose one of none, linear"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Elastic(**options)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"code": "train(state)"}, "put `@fd.elastic` above"),
        ({"backend": "none"}, "share no world"),
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
