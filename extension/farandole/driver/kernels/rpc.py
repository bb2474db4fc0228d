"""Calls on one rank, and interrupts, while its cell runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import CONNECTION_LOST, Reply
from farandole.exceptions import WorkerStartError


def answers(kernel: RankKernel) -> bool:
    """Return whether a rank can be called now."""
    return kernel.alive and kernel.connected


async def ask_in_subshell(kernel: RankKernel, call: RankCall[Any], seconds: float, *, fresh: bool) -> Reply | None:
    """Make a call while a rank's cell runs; return None if it fails or takes too long."""
    reply = None
    try:
        async with asyncio.timeout(seconds):
            # During a restart of the proxy, for example, no rank can answer and replies get lost: call again.
            while reply is None or reply.ename == CONNECTION_LOST:
                await kernel.reachable()
                subshell = await (kernel.subshell() if fresh else kernel.side_subshell())
                reply = await kernel.evaluate(call.expression, subshell=subshell)
    except TimeoutError:
        return None
    return reply if reply.status == "ok" else None


async def interrupt(kernel: RankKernel, seconds: float) -> None:
    """Interrupt a rank; errors and timeouts of its worker are ignored, as they do not mean that the rank is lost."""
    with suppress(WorkerStartError, TimeoutError):
        async with asyncio.timeout(seconds):
            await kernel.interrupt()
