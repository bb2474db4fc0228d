"""The rank's end of ``%push`` and ``%pull``.

Pushed bytes arrive as the buffer of a comm and wait in a `Mailbox` under their key until a cell accepts them. Values
too large to send to each rank go to one and reach the others through the backend.
"""

from __future__ import annotations

import difflib
import functools
import threading
from typing import Any

from farandole import protocol
from farandole.exceptions import TransferError
from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.world.collectives import broadcast_bytes


class Mailbox:
    """Keeps pushed bytes, by key, until they are taken; filled by the kernel's thread."""

    def __init__(self) -> None:
        self._parcels: dict[str, bytearray] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``, after what came under it before: large values come in parts, in order."""
        with self._lock:
            self._parcels.setdefault(key, bytearray()).extend(data)

    def take(self, key: str) -> bytes:
        """Return and forget what came under ``key``; TransferError when nothing did."""
        with self._lock:
            data = self._parcels.pop(key, None)
        if data is None:
            raise TransferError(
                f"Rank {context.rank()} has not received the pushed values ({key}); run %push again, "
                f"and see %cluster status if it happens twice."
            )
        return bytes(data)


@functools.cache
def mailbox() -> Mailbox:
    """Return the one mailbox of this process."""
    return Mailbox()


def install() -> None:
    """Let this kernel receive pushed values; a second call does nothing new."""
    import comm

    comm.get_comm_manager().register_target(protocol.PUSH_TARGET, _on_open)


def accept(key: str, names: list[str] | None = None) -> None:
    """Put the pushed values of ``key`` into the user's namespace; only ``names`` of them where given."""
    _bind(mailbox().take(key), names)


def accept_broadcast(key: str, names: list[str] | None = None, root: int = 0) -> None:
    """Broadcast the bytes that rank ``root`` holds under ``key`` to all ranks, then do as `accept`."""
    data = mailbox().take(key) if context.rank() == root else b""
    _bind(broadcast_bytes(data, root), names)


def give(names: list[str]) -> None:
    """Send the user's variables ``names`` to the driver as one pickle; TransferError names what is missing."""
    import cloudpickle

    namespace = _namespace()
    values = {name: _find(name, namespace) for name in names}
    try:
        data = cloudpickle.dumps(values)
    except Exception as exc:  # pickling runs code of the user's objects, which may raise anything
        raise TransferError(
            f"Rank {context.rank()} cannot pickle {_list(names)}: {exc}. "
            f"Pull its data instead, e.g. a state_dict or an array."
        ) from exc
    record = {"kind": Kind.VALUE, "rank": context.rank(), "names": names}
    reporter.send(record, buffers=[data])


def _on_open(_comm: Any, message: dict[str, Any]) -> None:
    mailbox().put(message["content"]["data"]["key"], bytes(message["buffers"][0]))


def _bind(data: bytes, names: list[str] | None) -> None:
    import cloudpickle

    try:
        values: dict[str, Any] = cloudpickle.loads(data)
    except Exception as exc:  # unpickling imports modules and runs code, which may raise anything
        wanted = _list(names) if names else "the pushed values"
        raise TransferError(
            f"Rank {context.rank()} cannot unpickle {wanted}: {exc}. Their classes must be importable on the workers: "
            f"define them in a %%distributed cell or install their package in the image."
        ) from exc
    _namespace().update({name: values[name] for name in names or values})


def _find(name: str, namespace: dict[str, Any]) -> Any:
    if name in namespace:
        return namespace[name]
    own = [known for known in namespace if not known.startswith("_")]
    similar = difflib.get_close_matches(name, own, n=3)
    hint = f" Did you mean {_list(similar)}?" if similar else " Assign it in a %%distributed cell first."
    raise TransferError(f"Rank {context.rank()} has no variable {name!r}.{hint}")


def _namespace() -> dict[str, Any]:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise TransferError("There is no kernel here: %push and %pull work on the ranks of a cluster.")
    namespace: dict[str, Any] = shell.user_ns
    return namespace


def _list(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
