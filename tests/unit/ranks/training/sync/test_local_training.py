"""Ranks that train on their own, and average their parameters beside the training."""

import time

import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.sync import attached
from farandole.ranks.training.sync.choice.trial import STEPS as TRIAL_STEPS
from farandole.ranks.training.sync.local_training import LONGEST_FACTOR, LocalTraining
from farandole.ranks.training.sync.modes import PAYLOADS, Auto, Local
from torch import nn

LENGTH = 300


class Trained:
    """A parameter of zeros on a rank, which steps move by given amounts."""

    def __init__(self, mode, *, start=None, **options):
        self.parameter = nn.Parameter(torch.zeros(LENGTH) if start is None else start.clone())
        self.model = nn.ParameterList([self.parameter])
        self.optimizer = torch.optim.SGD([self.parameter], lr=1.0, **options)
        self.training = LocalTraining(self.model, self.optimizer, mode)

    def move(self, change):
        self.parameter.grad = -torch.as_tensor(change, dtype=torch.float32).expand(LENGTH).clone()
        self.optimizer.step()

    @property
    def value(self):
        return self.parameter.detach().clone()


def trained(ranks, mode, **options):
    return [Trained(mode, **options) for _ in range(ranks.size)]


def changes_of(ranks, steps):
    return torch.randn(steps, ranks.size, LENGTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("delay", [0, 1, 2, 3])
def test_an_average_corrects_by_the_difference_to_what_was_sent(ranks, delay):
    each = trained(ranks, Local(every=4, delay=delay, payload="fp32", warmup=0))
    changes = changes_of(ranks, 13)

    def work(rank):
        values = []
        for change in changes:
            each[rank].move(change[rank])
            values.append(each[rank].value)
        return values

    found = ranks.run(work)
    own = [torch.zeros(LENGTH)] * ranks.size
    sent, reference = {}, torch.zeros(LENGTH)
    for step in range(1, 14):
        own = [value + changes[step - 1, rank] for rank, value in enumerate(own)]
        if step % 4 == 0:
            sent = dict(enumerate(own))
        if sent and step % 4 == delay % 4:
            reference = sum(sent.values()) / ranks.size
            own = [value + reference - sent[rank] for rank, value in enumerate(own)]
        for rank, value in enumerate(own):
            torch.testing.assert_close(found[rank][step - 1], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("delay", [0, 2])
def test_no_change_is_lost(ranks, payload, delay):
    each = trained(ranks, Local(every=3, delay=delay, payload=payload, warmup=0))
    changes = changes_of(ranks, 20)

    def work(rank):
        for change in changes:
            each[rank].move(change[rank])
        each[rank].training.average_now()
        rounded = each[rank].value
        for _ in range(12):  # averages without further changes send what rounding has left behind
            each[rank].move(0.0)
        each[rank].training.average_now()
        return rounded, each[rank].value

    found = ranks.run(work)
    expected = changes.mean(1).sum(0)
    for rounded, value in found:
        assert torch.equal(rounded, found[0][0])
        assert torch.equal(value, found[0][1])
        torch.testing.assert_close(rounded, expected, rtol=0, atol=1.0)
        # Sums in half precision are rounded on their way, which no rank knows of.
        torch.testing.assert_close(value, expected, rtol=0, atol=2e-2 if payload == "fp16" else 1e-3)


@pytest.mark.parametrize("payload", ["int8", "int4"])
def test_the_rounding_error_stays_bounded(ranks, payload):
    each = trained(ranks, Local(every=1, delay=0, payload=payload, warmup=0))
    changes = changes_of(ranks, 200)

    def work(rank):
        for change in changes:
            each[rank].move(change[rank])
        return each[rank].value

    found = ranks.run(work)[0]
    # That of one average, though there were 200.
    bound = 2 * changes.abs().max() / (127 if payload == "int8" else 7)
    torch.testing.assert_close(found, changes.mean(1).sum(0), rtol=0, atol=float(bound))


def test_momentum_stays_on_its_rank(ranks):
    each = trained(ranks, Local(every=2, delay=1, payload="fp32", warmup=0), momentum=0.9)

    def work(rank):
        for _ in range(5):
            each[rank].move(float(rank))
        return each[rank].optimizer.state[each[rank].parameter]["momentum_buffer"][0].item()

    expected = sum(0.9**step for step in range(5))
    assert ranks.run(work) == pytest.approx([-rank * expected for rank in range(3)])


def test_a_warmup_averages_after_each_step_and_does_not_count_in_the_figures(ranks):
    each = trained(ranks, Local(every=100, delay=0, payload="fp32", warmup=5))

    def work(rank):
        for step in range(8):
            each[rank].move(float(rank))
            if step == 4:
                assert each[rank].value[0].item() == 5
        figures = each[rank].training._figures
        return figures.steps, figures.sent, figures.waited

    assert ranks.run(work) == [(3, 0, 0.0)] * 3
    assert len(ranks.sums) == 5


def test_the_quadratic_schedule_averages_less_often_as_the_rate_falls(ranks):
    each = trained(ranks, Local(every=2, delay=1, payload="fp32", warmup=0, schedule="quadratic"))

    def work(rank):
        counts = []
        for rate in (1.0, 0.5, 0.25, 0.0):
            each[rank].optimizer.param_groups[0]["lr"] = rate
            before = len(ranks.sums)
            for _ in range(64):
                each[rank].move(0.0)
            counts.append(len(ranks.sums) - before)
        return counts

    full, half, quarter, none = ranks.run(work)[0]
    assert (full, half) == (32, 32)
    assert 7 <= quarter <= 9
    assert none <= 64 / (2 * LONGEST_FACTOR) + 1


def test_the_quadratic_schedule_continues_with_the_state_of_the_optimizer(ranks):
    ranks.size = 1
    mode = Local(every=2, delay=1, payload="fp32", warmup=0, schedule="quadratic")
    [before], [after] = trained(ranks, mode), trained(ranks, mode)
    before.move(1.0)  # at a rate of 1
    before.optimizer.param_groups[0]["lr"] = 0.1
    after.optimizer.load_state_dict(before.optimizer.state_dict())
    after.move(1.0)
    assert after.training._interval(after.optimizer) == 2 * LONGEST_FACTOR


def test_parameters_without_gradients_are_not_sent(ranks):
    ranks.size = 1
    frozen, own = (nn.Parameter(torch.zeros(size)) for size in (1000, 3))
    frozen.requires_grad_(False)
    optimizer = torch.optim.SGD([frozen, own], lr=1.0)
    training = LocalTraining(nn.ParameterList([frozen, own]), optimizer, Local())
    own.grad = torch.ones(3)
    optimizer.step()
    assert training._averager.reference.shape == (3,)
    frozen.requires_grad_(True)
    with pytest.raises(UsageError, match="trains 1 more parameters.*after add_param_group or requires_grad_"):
        optimizer.step()
    own.requires_grad_(False)
    frozen.requires_grad_(False)
    with pytest.raises(UsageError, match="no parameter that requires gradients.*Call requires_grad_"):
        LocalTraining(nn.ParameterList([own]), optimizer, Local())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_no_change_is_lost_in_parameters_with_few_digits(ranks, dtype, delay):
    start = torch.ones(LENGTH, dtype=dtype)
    each = trained(ranks, Local(every=4, delay=delay, payload="fp32", warmup=0), start=start)
    digit = torch.finfo(dtype).eps

    def work(rank):
        for step in range(40):
            change = digit if rank == 0 and step % 4 == 0 else 0.0  # a third of a digit for each average
            each[rank].parameter.grad = torch.full((LENGTH,), -change, dtype=dtype)
            each[rank].optimizer.step()
        each[rank].training.average_now()
        return each[rank].value

    for value in ranks.run(work):
        assert (value - start).mean().item() == pytest.approx(10 / 3 * digit, abs=digit)


def test_a_change_after_the_last_step_is_in_the_last_average(ranks):
    each = trained(ranks, Local(every=4, delay=3, payload="fp32", warmup=0))

    def work(rank):
        for _ in range(4):
            each[rank].move(1.0)
        each[rank].parameter.data.clamp_(max=0.5 if rank == 0 else 5.0)  # as for a critic, or with a pruned model
        each[rank].training.average_now()
        return each[rank].value

    for value in ranks.run(work):
        torch.testing.assert_close(value, torch.full((LENGTH,), (0.5 + 4 + 4) / 3))


def test_statistics_of_batches_are_pooled_at_the_end(ranks):
    batches = torch.randn(3, 500, 4, generator=torch.Generator().manual_seed(0)) * 3
    batches[0] += 5
    models = [nn.Sequential(nn.BatchNorm1d(4, momentum=1.0)) for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.0) for model in models]
    trainings = [
        LocalTraining(model, optimizer, Local(every=100, delay=0, warmup=0))
        for model, optimizer in zip(models, optimizers, strict=True)
    ]

    def work(rank):
        models[rank](batches[rank])
        optimizers[rank].step()
        trainings[rank].average_now()

    ranks.run(work)
    together = batches.flatten(0, 1)
    for model in models:
        torch.testing.assert_close(model[0].running_mean, together.mean(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model[0].running_var, together.var(0), rtol=1e-2, atol=1e-2)


def test_a_smaller_world_goes_on_in_the_middle_of_an_interval(ranks):
    each = trained(ranks, Local(every=4, delay=2, payload="int4", warmup=2))
    ranks.run(lambda rank: [each[rank].move(float(rank)) for _ in range(6)])  # an average is in progress
    assert each[0].training._pending is not None
    start = each[0].value
    ranks.change_world(2)
    for one in each[:2]:
        one.parameter.data.copy_(start)  # as the state of an elastic run is shared
    ranks.sums.clear()

    def work(rank):
        for _ in range(5):
            each[rank].move(float(rank))
        each[rank].training.average_now()
        return each[rank].value

    found = ranks.run(work)
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], start + 5 * 0.5, rtol=0, atol=0.1)
    assert len(ranks.sums) == 2  # one that was due, and the last one: the warm-up is not repeated


def test_a_new_rank_takes_over_the_number_of_steps(ranks):
    ranks.size = 2
    mode = Local(every=5, delay=0, payload="fp32", warmup=3)
    each = trained(ranks, mode)
    ranks.run(lambda rank: [each[rank].move(1.0) for _ in range(7)])
    start = each[0].value
    ranks.change_world(3)
    for one in each:
        one.parameter.data.copy_(start)
    each.append(Trained(mode, start=start))
    ranks.sums.clear()
    ranks.run(lambda rank: [each[rank].move(float(rank)) for _ in range(5)])
    assert [one.training.steps for one in each] == [12] * 3
    assert len(ranks.sums) == 1
    assert [one.value[0].item() for one in each] == [7 + 5] * 3


@pytest.mark.parametrize(("delay", "sent"), [(0, [0, 0, 0, 1, 1]), (1, [0, 0, 0, 1, 1]), (2, [0, 0, 0, 0, 1])])
def test_what_is_encoded_beside_the_training_is_sent_after_the_next_step(ranks, delay, sent):
    # All ranks begin it in their own thread, because another collective of the user may follow.
    each = trained(ranks, Local(every=4, delay=delay, payload="int4", warmup=0))
    found = []
    for _ in sent:
        ranks.run(lambda rank: each[rank].move(1.0))
        found.append(len(ranks.sums))
    assert found == sent


@pytest.mark.parametrize("steps", [4, 5, 6])
def test_an_average_in_progress_ends_before_the_parameters_are_made_equal(ranks, steps):
    each = trained(ranks, Local(every=4, delay=3, payload="fp32", warmup=0))

    def work(rank):
        for _ in range(steps):
            each[rank].move(float(rank))
        each[rank].training.average_now()
        return each[rank].value

    for value in ranks.run(work):
        torch.testing.assert_close(value, torch.full((LENGTH,), float(steps)))
    # One average is enough if it was due after the last step.
    assert len(ranks.sums) == (1 if steps == 4 else 2)


def test_statistics_are_recomputed_with_the_average_of_the_parameters(ranks):
    models = [nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1)) for _ in range(3)]
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=1.0) for model in models]
    trainings = [
        LocalTraining(model, optimizer, Local(every=100, payload="fp32", warmup=0))
        for model, optimizer in zip(models, optimizers, strict=True)
    ]
    batches = torch.arange(24.0).reshape(2, 4, 3, 1)

    def work(rank):
        models[rank][0].weight.data.fill_(1.0)
        models[rank][0].weight.grad = torch.full((1, 1), -float(rank))  # the mean of the weights is 2
        optimizers[rank].step()
        with pytest.raises(UsageError, match="there are no batches"):
            trainings[rank].average_now([])
        recompute(rank)

    def recompute(rank, more=0):
        trainings[rank].average_now([(batch.flatten(0, 1), None) for batch in batches + rank + more])

    ranks.run(work)
    for model in models:
        assert model[1].running_mean.item() == pytest.approx(2 * (11.5 + 1))
        assert model[1].momentum == 0.1
    ranks.change_world(3)  # without a step in the new world, there is nothing to average, but there are statistics
    ranks.run(lambda rank: recompute(rank, more=4))
    for model in models:
        assert model[1].running_mean.item() == pytest.approx(2 * (11.5 + 1 + 4))


def test_a_training_goes_on_after_a_rank_was_lost_in_an_exchange(ranks):
    each = trained(ranks, Local(every=2, delay=1, payload="int8", warmup=0))
    ranks.run(lambda rank: each[rank].move(1.0))
    ranks.failing = RuntimeError("Connection closed by peer")
    ranks.run(lambda rank: each[rank].move(1.0))

    def fail(rank):
        with pytest.raises(RuntimeError, match="closed by peer"):
            each[rank].move(1.0)

    ranks.run(fail)
    start = torch.full((LENGTH,), 2.0)  # the last commit
    ranks.change_world(2)
    for one in each[:2]:
        one.parameter.data.copy_(start)

    def work(rank):
        for _ in range(2):
            each[rank].move(float(rank))
        each[rank].training.average_now()
        return each[rank].value

    for value in ranks.run(work):
        torch.testing.assert_close(value, start + 1.0, rtol=0, atol=0.05)


def test_ranks_with_different_parameters_are_refused(ranks):
    each = trained(ranks, Local())
    each[2].parameter.data[0] = 1e-6

    def work(rank):
        with pytest.raises(UsageError, match="the ranks have different parameters"):
            each[rank].move(1.0)

    ranks.run(work)


def test_parameters_that_were_added_to_the_optimizer_are_refused(ranks):
    ranks.size = 1
    [one] = trained(ranks, Local())
    one.move(1.0)
    one.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with pytest.raises(UsageError, match="trains 1 more parameters than at fd.prepare.*call fd.prepare again"):
        one.move(1.0)


def test_an_average_at_the_end_that_failed_does_not_count_as_done(ranks):
    each = trained(ranks, Local(every=100, delay=0, payload="fp32", warmup=0))
    ranks.run(lambda rank: each[rank].move(float(rank)))
    ranks.failing = RuntimeError("Connection closed by peer")

    def fail(rank):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="closed by peer"):
                each[rank].training.average_now()

    ranks.run(fail)


def test_an_average_at_the_end_is_not_repeated_without_a_step(ranks):
    each = trained(ranks, Local(every=100, delay=0, payload="fp32", warmup=0))

    def work(rank):
        each[rank].move(float(rank))
        each[rank].training.average_now()
        each[rank].training.average_now()

    ranks.run(work)
    assert len(ranks.sums) == 1


def test_the_end_of_an_epoch_leaves_out_optimizers_of_earlier_loops(ranks, monkeypatch):
    ranks.size = 1
    finished = []

    def finish(training):
        finished.append(training)

    monkeypatch.setattr(LocalTraining, "_finish", finish)
    earlier, later = trained(ranks, Local()) + trained(ranks, Local())
    for one in (earlier, later):
        attached.attach(one.model, one.optimizer, Local())
    earlier.move(1.0)  # a loop that was left early
    begun = time.perf_counter()
    later.move(1.0)
    attached.average_all(since=begun)
    assert finished == [attached._attached[later.optimizer]]
    attached.detach(earlier.optimizer)
    attached.detach(later.optimizer)


def test_auto_measures_again_in_another_world(ranks):
    each = trained(ranks, Auto())

    def work(rank):
        for _ in range(TRIAL_STEPS):
            each[rank].move(float(rank))
        assert each[rank].training._trial is None
        each[rank].move(0.0)
        return each[rank].training._mode, each[rank].training._figures.steps

    chosen = ranks.run(work)
    assert len({mode for mode, _ in chosen}) == 1
    assert [steps for _, steps in chosen] == [1] * 3  # the figures are those of the chosen mode
    assert len(ranks.notices) == 1
    ranks.run(lambda rank: each[rank].training.average_now())
    ranks.change_world(2)

    def again(rank):
        each[rank].move(0.0)
        assert each[rank].training._trial is not None
        for _ in range(TRIAL_STEPS - 1):
            each[rank].move(0.0)

    ranks.run(again)
    assert len(ranks.notices) == 2
