"""Forms and leaves the world on one rank, with one class for each backend."""

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

from farandole.exceptions import DeadlineError
from farandole.ranks import context
from farandole.ranks.world.cores import share_cores
from farandole.ranks.world.sockets import OpenedSockets

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""torch's default. It can be long, because the driver detects dead ranks much sooner."""
MEETING_TIMEOUT = timedelta(seconds=20)
"""Time limit for all ranks to reach the store. Cutting the connection to the store unblocks a waiting rank."""
CONNECT_TIMEOUT = timedelta(seconds=3)
"""Time limit for the exchange of addresses after that; Gloo gives each connection five times as long.

A rank that waits for the address of a peer that has just died cannot be unblocked by cutting a connection. It has to
give up before the driver treats it as hung.
"""
LEAVE_SECONDS = 5.0
"""How long a thread that leaves the world waits for another thread that forms or leaves it."""
FORM_SECONDS = 60.0
"""The same for a thread that forms a world."""


class World(ABC):
    """The process group of a backend; `form` and `leave` may be called repeatedly in one process.

    The main thread forms and leaves the world. If it blocks, another thread leaves it. The lock keeps these apart,
    because neither library supports concurrent calls.
    """

    def __init__(self) -> None:
        self._sockets = OpenedSockets()
        self._lock = threading.Lock()
        self.times_left = 0
        """How often this process has left a world; collectives started in an earlier world are void."""

    @contextmanager
    def _forming(self) -> Iterator[None]:
        """Exclude other threads, and track the connections that are opened."""
        if not self._lock.acquire(timeout=FORM_SECONDS):
            raise DeadlineError(
                f"rank {context.rank()} has been leaving its last world for {FORM_SECONDS:g} s; run `%cluster stop` "
                "and start the cluster again"
            )
        try:
            with self._sockets.track():
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _leaving(self, seconds: float) -> Iterator[bool]:
        """Exclude other threads; yield False if another one still forms or leaves the world after ``seconds``."""
        alone = self._lock.acquire(timeout=seconds)
        # Counted before the world is left: unblocked threads continue immediately and need the new count.
        self.times_left += alone
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()

    @abstractmethod
    def form(self) -> None:
        """Join the world that the environment describes."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the world, also from another thread while this rank blocks; does nothing outside a world."""

    def abandon(self) -> None:
        """Leave a broken world, and unblock peers that wait for this rank as if its process had ended."""
        self.leave()


class NoWorld(World):
    """Ranks without a process group."""

    def form(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class HorovodWorld(World):
    """A world of Horovod."""

    def form(self) -> None:
        """Initialize Horovod."""
        import horovod.torch as hvd

        with self._forming():
            hvd.init()
        share_cores()

    def abandon(self) -> None:
        """Cut the connections, then shut Horovod down: on its own it waits for peers until Gloo's timeout."""
        self._sockets.cut()
        self.leave()

    def leave(self) -> None:
        """Shut Horovod down; collectives in flight raise an error."""
        import horovod.torch as hvd

        with self._leaving(LEAVE_SECONDS) as alone:
            if alone:
                hvd.shutdown()


class TorchWorld(World):
    """A world of torch.distributed: the default process group."""

    def __init__(self) -> None:
        super().__init__()
        self._store: TCPStore | None = None

    def open_store(self, host: str) -> int:
        """Open the store where the ranks meet, on rank 0, replacing an earlier one; return its port.

        It listens at ``host``, or on all addresses if that is empty. TCPStore by itself always listens on all.
        """
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported, but not by the letter

        listener = socket.create_server((host, 0))
        port = int(listener.getsockname()[1])
        self._store = TCPStore(
            host or "0.0.0.0", port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        return port

    def form(self) -> None:
        """Create the default process group; it includes NCCL if each rank of this worker has its own GPU."""
        import torch
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _set_pg_timeout, _world

        gpus = torch.cuda.device_count()
        own_gpu = gpus >= context.local_size()
        if own_gpu:
            torch.cuda.set_device(context.device())
        with self._forming():
            # torch derives the keys in the store from this counter, and a failed attempt increments it too. Without the
            # reset, ranks with different numbers of failed attempts would use different keys and never meet.
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
        """Cut the connections and destroy the process group. The store stays, since the next world may use it already.

        Cutting is necessary: Gloo waits in C++ until a connection breaks, and a model's wrapper keeps a reference to
        the destroyed group.
        """
        import torch.distributed as dist

        deadline = time.monotonic() + LEAVE_SECONDS
        while time.monotonic() < deadline:
            # Repeated, because a thread that forms a world may open further connections and wait at each.
            self._sockets.cut()
            with self._leaving(0.1) as alone:
                if alone:
                    if dist.is_initialized():
                        dist.destroy_process_group()
                    return

    def _meeting_point(self) -> Any:
        """Return a client of the store, also on rank 0: cutting it unblocks a waiting rank, and the store stays."""
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
    """Return the store once all ranks have connected."""
    store.set(f"met/{context.rank()}", "")
    store.wait([f"met/{rank}" for rank in range(context.size())], MEETING_TIMEOUT)
    return store


@functools.cache
def worlds() -> dict[str, World]:
    """Return the worlds of this process by backend."""
    return {"horovod": HorovodWorld(), "torch": TorchWorld(), "none": NoWorld()}


def current() -> World:
    """Return the world of the backend set in the environment."""
    return worlds()[context.backend()]


def open_store(host: str) -> int:
    """Open the torch backend's store on this rank, at ``host`` or on all addresses; return its port."""
    world = worlds()["torch"]
    assert isinstance(world, TorchWorld)
    return world.open_store(host)
