"""``fd.sync``: the modes for the argument ``sync`` of ``fd.prepare``. Importing this package does not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from farandole.ranks.training.sync.modes import DEFAULT_WARMUP, Asynchronous, Auto, Compressed, Local, default_delay

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["asynchronous", "auto", "compressed", "finish", "local"]


def asynchronous(*, every: int = 16, quorum: int = 1, grace: float = 1.0, payload: str = "fp16") -> Asynchronous:
    """Train on each rank on its own, and exchange parameters without waiting for slower ranks.

    Rank 0 holds the parameters, in threads beside its training. Every few steps, a rank sends the change of its
    parameters and trains on. When the answer has arrived, the rank continues from the parameters of the server and its
    own steps since then. It waits for an answer only if the answer is ``every`` steps late. A change is weighted by the
    share of the rank in the steps of all ranks, and the gradients of a step by its samples. Ranks have different
    parameters at all times.

    Args:
        every (int): optimizer steps of a rank between two exchanges.
        quorum (int): number of ranks, including itself, whose changes since its last exchange an answer contains. With
            1, the answer is sent at once.
        grace (float): seconds after which an answer is sent without the changes of the quorum.
        payload (str): ``"fp32"``, ``"fp16"``, ``"int8"`` or ``"int4"``.

    Returns:
        Asynchronous: a value for ``fd.prepare(..., sync=...)``.

    Raises:
        UsageError: an argument is wrong.

    Source:
        Dean et al.: Large scale distributed deep networks, 2012. Zhang et al.: Deep learning with elastic averaging
        SGD, 2015. Liu et al.: Asynchronous local-SGD training for language modeling, 2024.
    """
    return Asynchronous(every=every, quorum=quorum, grace=grace, payload=payload)


def auto() -> Auto:
    """Choose the mode after the first 30 steps, so that ranks train at 0.95 of their speed without a network.

    During these steps, ranks average their parameters after each step and measure how long an average and a step take.
    Then they use :func:`local` with the shortest interval, and with it the least delay, that is predicted to reach 0.97
    of the speed, because trainings are a little slower than predicted. Only values are considered whose published gap
    in accuracy to the mode ``step`` is at most 2 points. The gaps were measured after trainings of 1,100 steps with
    stochastic gradient descent; shorter trainings can lose more. If no value reaches the speed, ranks use the fastest
    one. A notice on the run says which values are used and why. If they average after each step, the mode ``step`` is
    as fast.

    Ranks measure again when an elastic run loses or adds ranks.

    Returns:
        Auto: a value for ``fd.prepare(..., sync=...)``.
    """
    return Auto()


def compressed(method: str = "fp16", *, rank: int = 2) -> Compressed:
    """Average compressed gradients in every backward pass.

    Args:
        method (str): ``"fp16"`` halves the traffic. ``"powersgd"`` sends low-rank factors of each gradient matrix and
            keeps the error for the next step. It needs the torch backend.
        rank (int): rank of the factors of ``"powersgd"``. More are more exact and cost more traffic and computation.

    Returns:
        Compressed: a value for ``fd.prepare(..., sync=...)``.

    Raises:
        UsageError: an argument is wrong.

    Source:
        Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019.
    """
    return Compressed(method, rank)


def finish(optimizer: Optimizer, batches: Iterable[Any] | None = None) -> None:
    """Wait for an average of the parameters as they are now, so that all ranks have equal parameters.

    The end of an epoch of the prepared loader does this by itself. Call this function on all ranks, after the same
    step, before an evaluation in any other place. It does nothing on a single rank, and in the modes ``step`` and
    ``compressed``, whose ranks are always equal. With :func:`asynchronous`, each rank takes the newest parameters, and
    ranks stay different.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer that ``fd.prepare`` has returned.
        batches (iterable, optional): batches of training data, as ``torch.optim.swa_utils.update_bn`` takes them. Batch
            normalization gets their statistics at the averaged parameters. Without them, it has the mean of the
            statistics that ranks have gathered in training, when their parameters differed.
    """
    from farandole.ranks.training.sync import attached

    attached.average_now(optimizer, batches)


def local(
    *,
    every: int = 16,
    delay: int | None = None,
    payload: str = "fp16",
    warmup: int = DEFAULT_WARMUP,
    schedule: str = "fixed",
) -> Local:
    """Train on each rank on its own, and average the parameters of all ranks every few steps.

    An average does not stop the training. Ranks send their parameters after step ``t`` and train on. After ``delay``
    further steps, each rank adds to its parameters what the average differs from what it sent. At the end of each epoch
    of the prepared loader, ranks wait for one more average, after which all have equal parameters. A loop that leaves
    an epoch early, or has another loader, calls :func:`finish` for that.

    Args:
        every (int): optimizer steps between two averages. More need less traffic and change the training more.
        delay (int, optional): optimizer steps that an average may take, fewer than ``every``. By default 6, or
            ``every - 1`` if that is less. With 0, ranks wait for each average.
        payload (str): ``"fp32"``, ``"fp16"``, ``"int8"`` or ``"int4"``. Ranks send the change of their parameters since
            the last average, and add the rounding error to what they send next.
        warmup (int): optimizer steps at the start after each of which ranks wait for an average. Without them, late
            averages cost more accuracy.
        schedule (str): ``"fixed"``, or ``"quadratic"``, with which the interval grows with the inverse square of the
            learning rate. It is ``every`` until the rate has fallen to half of its highest value.

    Returns:
        Local: a value for ``fd.prepare(..., sync=...)``.

    Raises:
        UsageError: an argument is wrong.

    Source:
        McMahan et al.: Communication-efficient learning of deep networks from decentralized data, 2017. Stich: Local
        SGD converges fast and communicates little, 2019. Lin et al.: Don't use large mini-batches, use local SGD, 2020.
        Gu et al.: A quadratic synchronization rule for distributed deep learning, 2024. Douillard et al.: DiLoCo, 2023,
        and Streaming DiLoCo with overlapping communication, 2025.
    """
    if delay is None:
        delay = default_delay(every) if isinstance(every, int) and every > 0 else 0
    return Local(every=every, delay=delay, payload=payload, warmup=warmup, schedule=schedule)
