"""Forms and leaves the world on one rank. Each backend has its own class."""

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
from farandole.ranks.world import libraries, process_group
from farandole.ranks.world.interrupts import deferred_interrupts
from farandole.ranks.world.sockets import OpenedSockets

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Timeout for collectives (torch's default). It can be long because the driver detects dead ranks much sooner."""
MEETING_TIMEOUT = timedelta(seconds=20)
"""Maximum time for all ranks to connect to the store.

Another thread can unblock a waiting rank earlier by cutting its connection to the store.
"""
CONNECT_TIMEOUT = timedelta(seconds=3)
"""Maximum time to exchange addresses after all ranks have connected. Gloo gives each connection five times as long.

A rank that waits for the address of a peer that has just died cannot be unblocked by cutting a connection. The rank
must time out before the driver treats it as hung.
"""
LEAVE_SECONDS = 5.0
"""Maximum time in seconds that a thread leaving the world waits for another thread to finish forming or leaving it."""
FORM_SECONDS = 60.0
"""Maximum time in seconds that a thread forming a world waits for another thread to leave the previous world."""


class World(ABC):
    """The process group of a backend. `form` and `leave` may be called repeatedly in one process.

    The main thread forms and leaves the world. If the main thread is blocked, another thread leaves the world. A lock
    serializes these calls, because neither Horovod nor torch.distributed supports concurrent calls.
    """

    def __init__(self) -> None:
        self._sockets = OpenedSockets()
        self._lock = threading.Lock()
        self.times_left = 0
        """Number of times that this process has left a world. Collectives from an earlier world are invalid."""

    @contextmanager
    def _forming(self) -> Iterator[None]:
        """Hold the lock and track the connections that are opened. Raise DeadlineError if the lock stays busy."""
        with self._locked(), self._sockets.track():
            yield

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Hold the lock while further groups of this world's ranks connect. Their connections end with the world."""
        with deferred_interrupts(), self._locked(), self._sockets.track_more():
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=FORM_SECONDS):
            raise DeadlineError(
                f"rank {context.rank()} has been leaving its last world for {FORM_SECONDS:g} s; run `%cluster stop` "
                "and start the cluster again"
            )
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _leaving(self, seconds: float) -> Iterator[bool]:
        """Hold the lock. Yield False if another thread is still forming or leaving the world after ``seconds``."""
        alone = self._lock.acquire(timeout=seconds)
        # Incremented before the world is left, because unblocked threads continue immediately and need the new number.
        self.times_left += alone
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()

    @abstractmethod
    def form(self) -> None:
        """Join the world that the environment variables describe."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the world, or do nothing outside a world. Another thread may call this while the rank is blocked."""

    def abandon(self) -> None:
        """Leave a broken world. Peers that wait for this rank are unblocked, as if this process had ended."""
        self.leave()

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the world that `form` created still exists, and so has not been left by the user's code."""


class NoWorld(World):
    """The world of ranks that have no process group."""

    def form(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def exists(self) -> bool:
        """Return True."""
        return True


class HorovodWorld(World):
    """The world of the Horovod backend."""

    def form(self) -> None:
        """Initialize Horovod."""
        import horovod.torch as hvd

        with self._forming():
            hvd.init()

    def abandon(self) -> None:
        """Cut the connections, then shut down Horovod, which would otherwise wait for peers until Gloo's timeout."""
        self._sockets.cut()
        self.leave()

    def leave(self) -> None:
        """Shut down Horovod. Collectives in flight raise an error."""
        import horovod.torch as hvd

        with self._leaving(LEAVE_SECONDS) as alone:
            if alone:
                hvd.shutdown()

    def exists(self) -> bool:
        """Return False after ``hvd.shutdown()``."""
        import horovod.torch as hvd

        return bool(hvd.is_initialized())


class TorchWorld(World):
    """The world of the torch backend, which is the default process group of torch.distributed."""

    def __init__(self) -> None:
        super().__init__()
        self._store: TCPStore | None = None
        self._group: object = None
        self._left: object = None
        """The group that was left last, which is released when the next world forms. If it were released right after
        a collective, its destructor could deadlock, because it holds the GIL while it joins a thread that needs it."""

    def open_store(self, host: str) -> int:
        """On rank 0, open the store that all ranks connect to, replacing an earlier store. Return its port.

        The store listens at ``host``, or on all addresses if ``host`` is empty. Without ``master_listen_fd``,
        TCPStore always listens on all addresses.
        """
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it only implicitly

        listener = socket.create_server((host, 0))
        port = int(listener.getsockname()[1])
        self._store = TCPStore(
            host or "0.0.0.0", port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        return port

    def form(self) -> None:
        """Create the default process group. It includes NCCL if each rank on this worker has its own GPU."""
        import torch
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _set_pg_timeout, _world

        gpus = torch.cuda.device_count()
        own_gpu = gpus >= context.local_size()
        if own_gpu:
            torch.cuda.set_device(context.device())
        elif gpus:
            libraries.share_gpus(gpus)
        with self._forming():
            self._left = None
            if dist.is_initialized():  # on another backend, a cell may have created a group for itself
                process_group.destroy()
            # torch derives the keys in the store from this counter and increments the counter even if an attempt fails.
            # Without the reset, ranks with different numbers of failed attempts would use different keys and time out.
            _world.group_count = 0
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if own_gpu else "gloo",
                store=_met_at(self._meeting_point()),
                rank=context.rank(),
                world_size=context.size(),
                timeout=CONNECT_TIMEOUT,
            )
            _set_pg_timeout(COLLECTIVE_TIMEOUT)
            self._group = dist.group.WORLD

    def leave(self) -> None:
        """Cut the connections and destroy the process group.

        The store stays open, because the next world may already be using it.

        The cut is necessary because Gloo waits in C++ until a connection breaks, and because a model's wrapper keeps a
        reference to the destroyed group.
        """
        import torch.distributed as dist

        deadline = time.monotonic() + LEAVE_SECONDS
        while time.monotonic() < deadline:
            # Repeat the cut, because a thread that is forming a world may open further connections and wait on each.
            self._sockets.cut()
            with self._leaving(0.1) as alone:
                if alone:
                    if dist.is_initialized():
                        self._left = dist.group.WORLD
                        process_group.destroy()
                    self._group = None
                    return

    def exists(self) -> bool:
        """Return False if the default process group is not the one that `form` created."""
        import torch.distributed as dist

        return self._group is not None and dist.group.WORLD is self._group

    def _meeting_point(self) -> Any:
        """Return a new client of the store, even on rank 0.

        Cutting the client's connection unblocks a waiting rank without closing the store.
        """
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it only implicitly

        own = self._store if context.rank() == 0 else None
        return TCPStore(
            own.host if own else os.environ["MASTER_ADDR"],
            own.port if own else int(os.environ["MASTER_PORT"]),
            None,
            is_master=False,
            wait_for_workers=False,
        )


def _met_at(store: TCPStore) -> TCPStore:
    """Return ``store`` once all ranks have connected to it."""
    store.set(f"met/{context.rank()}", "")
    store.wait([f"met/{rank}" for rank in range(context.size())], MEETING_TIMEOUT)
    return store


@functools.cache
def worlds() -> dict[str, World]:
    """Return the worlds of this process, by the name of their backend."""
    return {"horovod": HorovodWorld(), "torch": TorchWorld(), "none": NoWorld()}


def torch_world() -> TorchWorld:
    """Return the world of the torch backend."""
    world = worlds()["torch"]
    assert isinstance(world, TorchWorld)
    return world


def current() -> World:
    """Return the world of the backend that the environment variables select."""
    return worlds()[context.backend()]


def open_store(host: str) -> int:
    """Open the torch backend's store on this rank and return its port. An empty ``host`` means all addresses."""
    return torch_world().open_store(host)
