"""The world as one rank forms and leaves it, once for each backend."""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from farandole.exceptions import DeadlineError, UsageError
from farandole.ranks import context
from farandole.ranks.world.cores import share_cores
from farandole.ranks.world.sockets import OpenedSockets

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""torch's own default: ranks may be uneven, and the driver tells a dead rank long before."""
MEETING_TIMEOUT = timedelta(seconds=20)
"""For the ranks to meet at the store; who waits there is let go when the connection to it is cut."""
CONNECT_TIMEOUT = timedelta(seconds=3)
"""For what they tell each other once they have met, and a fifth of what Gloo gives each of their connections.

One that a peer owes who has just died cannot be cut: the rank has to give up before the driver takes it for hung.
"""
FREE_SECONDS = 5.0
"""How long a thread that leaves the world waits for one that is at it already."""
FORM_SECONDS = 60.0
"""The same for one that forms a world."""


class World(ABC):
    """A backend's process group; `form` and `leave` may be called again and again in one process.

    The main thread forms and leaves, another leaves while that is blocked: one at a time, no library bears two.
    """

    def __init__(self) -> None:
        self._sockets = OpenedSockets()
        self._lock = threading.Lock()
        self.times_left = 0
        """How often this process has left such a world; what a collective had begun before is forgotten."""

    @contextmanager
    def _forming(self) -> Iterator[None]:
        """Hold other threads off, and note the connections that are opened."""
        if not self._lock.acquire(timeout=FORM_SECONDS):
            raise DeadlineError(
                f"rank {context.rank()} has been leaving its last world for {FORM_SECONDS:g} s; `%cluster stop` and "
                "start again"
            )
        try:
            with self._sockets.watch():
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _leaving(self, seconds: float) -> Iterator[bool]:
        """Hold other threads off; yield False where one forms or leaves the world for so long already."""
        alone = self._lock.acquire(timeout=seconds)
        # Before it: whoever is let go by it goes on at once.
        self.times_left += alone
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()

    @abstractmethod
    def form(self) -> None:
        """Join the others; the environment says where and as whom."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the world, also from another thread while this rank blocks in a collective; harmless outside one."""

    def abandon(self) -> None:
        """Leave a world that is broken: peers that wait for this rank are let go as if its process had ended."""
        self.leave()


class NoWorld(World):
    """Ranks without a process group."""

    def form(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class HorovodWorld(World):
    """Horovod."""

    def form(self) -> None:
        """Initialise Horovod."""
        import horovod.torch as hvd

        with self._forming():
            hvd.init()
        share_cores()

    def abandon(self) -> None:
        """Cut the connections, then shut Horovod down: left to itself it waits for peers until Gloo's timeout."""
        self._sockets.cut()
        self.leave()

    def leave(self) -> None:
        """Shut Horovod down, which makes collectives in flight fail."""
        import horovod.torch as hvd

        with self._leaving(FREE_SECONDS) as alone:
            if alone:
                hvd.shutdown()


class TorchWorld(World):
    """torch.distributed's default process group."""

    def __init__(self) -> None:
        super().__init__()
        self._store: TCPStore | None = None

    def open_store(self, host: str) -> int:
        """Open the store that the ranks meet at, on rank 0, in the place of an earlier one; return its port.

        It listens at `host`, everywhere where that is empty; left to itself it would always listen everywhere.
        """
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, but not by the letter

        listener = socket.create_server((host, 0))
        port = int(listener.getsockname()[1])
        self._store = TCPStore(
            host or "0.0.0.0", port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        return port

    def form(self) -> None:
        """Join the default process group: NCCL as well where each rank of this node has its own GPU."""
        import torch
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _set_pg_timeout, _world

        gpus = torch.cuda.device_count()
        own_gpu = gpus >= context.local_size()
        if own_gpu:
            torch.cuda.set_device(context.device())
        with self._forming():
            # torch meets under the group's number, and who fails to form one has counted it all the same: of ranks of
            # which one had formed it, and the others had not, none would ever meet another again.
            _world.group_count = 0
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if own_gpu else "gloo",
                store=_met_at(self._meeting_point()),
                rank=context.rank(),
                world_size=context.size(),
                timeout=CONNECT_TIMEOUT,
            )
            _set_pg_timeout(COLLECTIVE_TIMEOUT)
        share_cores()

    def leave(self) -> None:
        """Cut the connections and destroy the process group; the store stays, it may be the next world's already.

        Gloo waits in C++ until a connection breaks, here or at a peer, and a wrapped model holds a destroyed group.
        """
        import torch.distributed as dist

        deadline = time.monotonic() + FREE_SECONDS
        while time.monotonic() < deadline:
            # Again and again: a thread that forms a world opens others, and waits at each.
            self._sockets.cut()
            with self._leaving(0.1) as alone:
                if alone:
                    if dist.is_initialized():
                        dist.destroy_process_group()
                    return

    def _meeting_point(self) -> Any:
        """Return a connection to the store, on rank 0 too: to cut that lets go who waits there, the store stays."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, but not by the letter

        own = self._store if context.rank() == 0 else None
        return TCPStore(
            own.host if own else os.environ["MASTER_ADDR"],
            own.port if own else int(os.environ["MASTER_PORT"]),
            None,
            is_master=False,
            wait_for_workers=False,
        )


def _met_at(store: TCPStore) -> TCPStore:
    """Return the store once all ranks have come to it."""
    store.set(f"met/{context.rank()}", "")
    store.wait([f"met/{rank}" for rank in range(context.size())], MEETING_TIMEOUT)
    return store


@functools.cache
def worlds() -> dict[str, World]:
    """Return this process's worlds, by backend."""
    return {"horovod": HorovodWorld(), "torch": TorchWorld(), "none": NoWorld()}


def current() -> World:
    """Return the world of the backend that the environment names."""
    return worlds()[context.backend()]


def open_store(host: str) -> int:
    """Open the torch backend's store on this rank, at `host` or everywhere; return its port."""
    world = worlds()["torch"]
    if not isinstance(world, TorchWorld):
        raise UsageError("the torch backend alone has a store")
    return world.open_store(host)
