"""Assigns the GPUs of a machine to servers, in the order of their requests.

The pool needs no lock. It runs on the hub's event loop, and no method awaits while it assigns GPUs: `GpuPool.acquire`
awaits only after it has added its request to the queue. Two servers can therefore never get the same GPU.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spawner_config.gpus.release import GpuRelease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from spawner_config.gpus.model import Gpu, GpuRequest, Key


class NoGpuError(RuntimeError):
    """Raised when too few GPUs are free for a request that may not wait, or when this machine has too few GPUs."""


@dataclass(frozen=True)
class _Waiter:
    request: GpuRequest
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class GpuPool:
    """The GPUs of a machine, the servers that hold them, and the queue of servers that wait for them."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        """Start with all GPUs free."""
        self._classes = {gpu.id: gpu.gpu_class for gpu in gpus}
        self._held: dict[Key, tuple[str, ...]] = {}
        self._queue: dict[Key, _Waiter] = {}
        self._changed = asyncio.Event()
        self.releases = GpuRelease(self.release)
        """Containers that are being removed and therefore still hold their GPUs; the spawners add them."""
        self.complete = False
        """Whether the pool knows all GPUs that servers have held since before the hub started. The spawners set this
        attribute."""

    async def acquire(self, request: GpuRequest, *, wait: bool = False) -> tuple[str, ...]:
        """Assign GPUs to a server and return their ids; if ``wait`` is true, wait in the queue until enough are free.

        Raises `NoGpuError` if not enough GPUs are free and ``wait`` is false, or if the machine does not have enough
        GPUs.
        """
        self._check_possible(request)
        waiter = self._queue[request.key] = _Waiter(request)
        self._serve()
        if not (wait or waiter.granted.done()):
            del self._queue[request.key]
            raise NoGpuError(self._why_not(request))
        try:
            await waiter.granted
        except BaseException:
            # Leave the queue if the start is cancelled, and return any GPUs that were granted just before the
            # cancellation.
            self._queue.pop(request.key, None)
            self.release(request.key)
            raise
        return self.held(request.key)

    def release(self, key: Key) -> None:
        """Free the GPUs that a server holds, if any, and assign them to waiting servers."""
        self._held.pop(key, None)
        self._serve()

    def restore(self, key: Key, ids: Iterable[str]) -> None:
        """Record the GPUs of a server that was started before the hub restarted."""
        self._held.setdefault(key, tuple(ids))

    def held(self, key: Key) -> tuple[str, ...]:
        """Return the ids of the GPUs that a server holds."""
        return self._held.get(key, ())

    def total(self, gpu_class: str | None = None) -> int:
        """Return the number of GPUs of a class; None counts all classes."""
        return len(self._of_class(gpu_class))

    def free(self, gpu_class: str | None = None) -> int:
        """Return the number of free GPUs of a class; None counts all classes."""
        return len(self._free(gpu_class))

    def holders(self, gpu_class: str | None = None) -> dict[str, int]:
        """Return how many GPUs of a class each user holds, without users who hold none."""
        ids = set(self._of_class(gpu_class))
        counts = Counter({user: 0 for user, _ in self._held})
        for (user, _), held in self._held.items():
            counts[user] += len(ids.intersection(held))
        return {user: number for user, number in sorted(counts.items()) if number}

    def waiting(self, gpu_class: str | None = None) -> list[Key]:
        """Return the servers that wait for GPUs of a class, in the order of the queue."""
        return [key for key, waiter in self._queue.items() if _compete(waiter.request.gpu_class, gpu_class)]

    def public(self) -> dict[str, dict[str, Any]]:
        """Return the state that all users may see, for JSON: total, free, held and waiting for each class."""
        return {
            name: {
                "total": self.total(name),
                "free": self.free(name),
                "held": self.holders(name),
                "waiting": len(self.waiting(name)),
            }
            for name in sorted(set(self._classes.values()))
        }

    def place(self, key: Key) -> tuple[int, str] | None:
        """Return a server's position in the queue, starting at 1, and a message for its user; None if not waiting."""
        waiter = self._queue.get(key)
        if waiter is None:
            return None
        request = waiter.request
        rivals = self.waiting(request.gpu_class)
        place = rivals.index(key) + 1
        return place, (
            f"Waiting for {_gpus(request.count, request.gpu_class)}, place {place} of {len(rivals)} in the queue. "
            f"{self._who(request.gpu_class)}"
        )

    async def changes(self) -> AsyncIterator[None]:
        """Yield immediately, and again after each change of the held GPUs or the queue."""
        while True:
            changed = self._changed
            yield
            await changed.wait()

    def _serve(self) -> None:
        """Assign free GPUs to waiting servers in order; no server overtakes another one that needs the same class."""
        kept: set[str] = set()
        for group in self._groups():
            chosen = self._choose(group, kept)
            if chosen is None:
                kept |= {name for waiter in group for name in self._wanted(waiter.request)}
                continue
            for waiter, ids in zip(group, chosen, strict=True):
                self._held[waiter.request.key] = ids
                del self._queue[waiter.request.key]
                if not waiter.granted.done():
                    waiter.granted.set_result(None)
        self._changed.set()
        self._changed = asyncio.Event()

    def _groups(self) -> list[list[_Waiter]]:
        """Return the groups whose workers have all requested GPUs, in the order in which the groups became complete."""
        members: dict[Key, list[_Waiter]] = {}
        complete = []
        for waiter in self._queue.values():
            cluster = waiter.request.cluster
            group = members.setdefault(cluster, [])
            group.append(waiter)
            if len(group) >= waiter.request.together:
                complete.append(members.pop(cluster))
        return complete

    def _choose(self, group: list[_Waiter], kept: set[str]) -> list[tuple[str, ...]] | None:
        chosen: list[tuple[str, ...]] = []
        taken: set[str] = set()
        for request in (waiter.request for waiter in group):
            free = [id_ for id_ in self._free(request.gpu_class) if id_ not in taken and self._classes[id_] not in kept]
            if len(free) < request.count:
                return None
            chosen.append(tuple(free[: request.count]))
            taken.update(chosen[-1])
        return chosen

    def _wanted(self, request: GpuRequest) -> set[str]:
        return {self._classes[id_] for id_ in self._of_class(request.gpu_class)}

    def _of_class(self, gpu_class: str | None) -> list[str]:
        return [id_ for id_, name in self._classes.items() if gpu_class in {None, name}]

    def _free(self, gpu_class: str | None) -> list[str]:
        taken = {id_ for ids in self._held.values() for id_ in ids}
        return [id_ for id_ in self._of_class(gpu_class) if id_ not in taken]

    def _check_possible(self, request: GpuRequest) -> None:
        number, total = request.count * request.together, self.total(request.gpu_class)
        if number > total:
            raise NoGpuError(
                f"The start needs {_gpus(number, request.gpu_class)}, but this host has {total}. Start fewer workers, "
                "or choose another profile."
            )

    def _why_not(self, request: GpuRequest) -> str:
        ahead = len(self.waiting(request.gpu_class))
        return (
            f"{_gpus(request.count, request.gpu_class)} not available now. {self._who(request.gpu_class)}"
            f"{f' In the queue: {ahead}.' if ahead else ''} Stop a server that you no longer need, or wait for a GPU: "
            "`%cluster start --wait`, or the box on the spawn page."
        )

    def _who(self, gpu_class: str | None) -> str:
        holders = " and ".join(f"{user} holds {number}" for user, number in self.holders(gpu_class).items())
        stuck = " and ".join(dict.fromkeys(user for user, _ in self.releases.stuck()))
        return (
            f"Of {_gpus(self.total(gpu_class), gpu_class)} {holders or 'nobody holds any'}."
            f"{f' The engine does not remove the last container of {stuck}: tell the administrator.' if stuck else ''}"
        )


def _compete(one: str | None, other: str | None) -> bool:
    return None in {one, other} or one == other


def _gpus(number: int, gpu_class: str | None) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}{f' of class {gpu_class}' if gpu_class else ''}"
