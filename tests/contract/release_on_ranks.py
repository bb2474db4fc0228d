"""Script for one rank in the contract test of how Horovod releases a rank.

Rank 0 waits in a backward pass for a rank that never takes part.
"""

import contextlib
import sys
import threading
from pathlib import Path

import farandole as fd
import torch
from farandole.ranks.world import world
from horovod.common.exceptions import HorovodInternalError

from hub.process import wait_until
from tests.contract.train_on_ranks import end_process, form_world

DEADLINE = 60


def main(result: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    model = torch.nn.Linear(4, 1)
    model, optimizer, _ = fd.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    if fd.rank() == 0:
        threading.Timer(0.5, world.current().leave).start()
        error = error_of(model)
        # The next cell begins with this call, which must succeed after the interrupted pass.
        optimizer.zero_grad(set_to_none=True)
        assert all(parameter.grad is None for parameter in model.parameters())
        result.write_text(error)
    else:
        refuses_while_it_is_averaged(model, optimizer)
    wait_until(result.exists, DEADLINE)


def refuses_while_it_is_averaged(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that gradients cannot be cleared after an aborted pass in a world that continues.

    The averages of that pass are still in flight, and the other ranks will join them.
    """
    hooks = [parameter.register_post_accumulate_grad_hook(broken_off) for parameter in model.parameters()]
    with contextlib.suppress(BrokenOffError):
        model(torch.randn(3, 4)).sum().backward()
    for hook in hooks:
        hook.remove()
    try:
        optimizer.zero_grad()
    except AssertionError as error:
        assert "race condition" in str(error)  # noqa: PT017
    else:
        raise AssertionError("gradients were cleared while they were being averaged")


class BrokenOffError(Exception):
    """Raised in the middle of a backward pass."""


def broken_off(_parameter: torch.Tensor) -> None:
    raise BrokenOffError


def error_of(model: torch.nn.Module) -> str:
    try:
        model(torch.randn(3, 4)).sum().backward()
    except (HorovodInternalError, ValueError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return "no error"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    end_process()
