"""The rank's side of ``%push`` and ``%pull``.

Pushed bytes arrive as buffers of comm messages and stay in a `ReceiveBuffer` until a cell accepts them. If values are
too large to be sent to every rank, they are sent to one rank, which broadcasts them over the backend.
"""

from __future__ import annotations

import functools
import platform
import threading
from typing import Any

from farandole import protocol
from farandole.exceptions import TransferError
from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.world.collectives import broadcast_bytes
from farandole.suggestions import did_you_mean


class ReceiveBuffer:
    """Keeps pushed bytes by key until a cell takes them. The kernel's thread writes, and the main thread reads."""

    def __init__(self) -> None:
        self._received: dict[str, bytearray] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        """Append ``data`` to the bytes of ``key``. Large values arrive in several messages, in order."""
        with self._lock:
            self._received.setdefault(key, bytearray()).extend(data)

    def take(self, key: str) -> bytes:
        """Remove and return the bytes of ``key``. Raise TransferError if there are none."""
        with self._lock:
            data = self._received.pop(key, None)
        if data is None:
            raise TransferError(
                f"Rank {context.rank()} has not received the pushed values ({key}); run %push again, "
                f"and see %cluster status if it happens twice."
            )
        return bytes(data)


@functools.cache
def receive_buffer() -> ReceiveBuffer:
    """Return the `ReceiveBuffer` of this process."""
    return ReceiveBuffer()


def install() -> None:
    """Let this kernel receive pushed values. This function may be called repeatedly."""
    import comm

    comm.get_comm_manager().register_target(protocol.PUSH_TARGET, _on_open)


def accept(key: str, python: str, names: list[str] | None = None) -> None:
    """Assign the values that were pushed under ``key`` to the user's variables.

    If ``names`` is given, assign only the values with these names. ``python`` is the version of Python that pickled
    the values.
    """
    _assign(receive_buffer().take(key), python, names)


def accept_broadcast(key: str, python: str, names: list[str] | None = None, root: int = 0) -> None:
    """Broadcast the bytes that rank ``root`` received under ``key`` to all ranks, then assign the values."""
    data = receive_buffer().take(key) if context.rank() == root else b""
    _assign(broadcast_bytes(data, root), python, names)


def give(names: list[str]) -> None:
    """Send the user's variables ``names`` to the driver as one pickle.

    Raises TransferError if a variable is missing or cannot be pickled.
    """
    import cloudpickle

    namespace = _namespace()
    values = {name: _find(name, namespace) for name in names}
    try:
        data = cloudpickle.dumps(values)
    except Exception as exc:  # pickling runs code of the user's classes, which may raise anything
        raise TransferError(
            f"Rank {context.rank()} cannot pickle {_list(names)}: {exc}. "
            f"Pull the data instead, e.g. a state_dict or an array."
        ) from exc
    python = platform.python_version()
    reporter.send({"kind": Kind.VALUE, "rank": context.rank(), "names": names, "python": python}, buffers=[data])


def _on_open(_comm: Any, message: dict[str, Any]) -> None:
    receive_buffer().put(message["content"]["data"]["key"], bytes(message["buffers"][0]))


def _assign(data: bytes, python: str, names: list[str] | None) -> None:
    """Assign pushed values in the user's namespace. Raise TransferError if they cannot be unpickled."""
    import cloudpickle

    if problem := protocol.foreign_code(data, python):
        raise TransferError(
            f"Rank {context.rank()} cannot use the pushed values: {problem}. Push only data, and define functions and "
            f"classes in a %%distributed cell, or use the same Python in the notebook and on the workers."
        )
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
    hint = did_you_mean(name, own) or " Assign it in a %%distributed cell first."
    raise TransferError(f"Rank {context.rank()} has no variable {name!r}.{hint}")


def _namespace() -> dict[str, Any]:
    """Return the user's variables, by name."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise TransferError("There is no kernel here: %push and %pull work on the ranks of a cluster.")
    namespace: dict[str, Any] = shell.user_ns
    return namespace


def _list(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
