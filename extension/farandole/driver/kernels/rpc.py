"""How one rank is asked, or interrupted, beside its cell."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import CONNECTION_LOST, Reply
from farandole.exceptions import WorkerStartError


def answers(kernel: RankKernel) -> bool:
    """Say whether a rank could be asked now."""
    return kernel.alive and kernel.connected


async def ask_in_subshell(kernel: RankKernel, call: RankCall[Any], seconds: float, *, fresh: bool) -> Reply | None:
    """Make a call beside a rank's cell; None where it fails, or takes too long."""
    reply = None
    try:
        async with asyncio.timeout(seconds):
            # After a restart of the proxy, say, nobody can answer for a while, and an answer may be lost: asked again.
            while reply is None or reply.ename == CONNECTION_LOST:
                await kernel.reachable()
                subshell = await (kernel.subshell() if fresh else kernel.side_subshell())
                reply = await kernel.evaluate(call.expression, subshell=subshell)
    except TimeoutError:
        return None
    return reply if reply.status == "ok" else None


async def interrupt(kernel: RankKernel, seconds: float) -> None:
    """Interrupt a rank; where its worker is too slow for it, that says nothing of the rank."""
    with suppress(WorkerStartError, TimeoutError):
        async with asyncio.timeout(seconds):
            await kernel.interrupt()
