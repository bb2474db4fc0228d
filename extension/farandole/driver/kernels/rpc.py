"""Calls and interrupts a rank while its cell is running."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import CONNECTION_LOST, Reply
from farandole.exceptions import WorkerStartError


def answers(kernel: RankKernel) -> bool:
    """Return whether a rank can be called right now."""
    return kernel.alive and kernel.connected


async def ask_in_subshell(kernel: RankKernel, call: RankCall[Any], seconds: float, *, fresh: bool) -> Reply | None:
    """Call a rank while its cell is running. Return None if the call fails or takes longer than `seconds`.

    A `fresh` call opens a new subshell, so that the call does not have to wait for an earlier one.
    """
    reply = None
    try:
        async with asyncio.timeout(seconds):
            # If the connection breaks, for example when the proxy restarts, the reply is lost and the call is repeated.
            while reply is None or reply.ename == CONNECTION_LOST:
                await kernel.reachable()
                subshell = await (kernel.subshell() if fresh else kernel.side_subshell())
                reply = await kernel.evaluate(call.expression, subshell=subshell)
    except TimeoutError:
        return None
    return reply if reply.status == "ok" else None


async def interrupt(kernel: RankKernel, seconds: float) -> None:
    """Interrupt a rank. Errors and timeouts are ignored, because they do not prove that the rank is lost."""
    with suppress(WorkerStartError, TimeoutError):
        async with asyncio.timeout(seconds):
            await kernel.interrupt()
