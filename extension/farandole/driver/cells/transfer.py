"""The driver's side of ``%push`` and ``%pull``."""

from __future__ import annotations

import pickle
import platform
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.exceptions import RankDiedError, RankError, TransferError
from farandole.protocol import PUSH_TARGET, foreign_code

BROADCAST_BYTES = 2**20
"""If the pickle of all values has at least this many bytes, `push` with ``broadcast`` sends it only to rank 0."""
CHUNK_BYTES = 4_000_000
"""The size of the chunks in which values are sent, in bytes. Jupyter Server accepts websocket messages of up to 10 MiB.
"""
TRANSFER_SECONDS = 300.0


def pack(values: Mapping[str, Any]) -> bytes:
    """Pickle a mapping of names to values.

    Raises:
        TransferError: a value cannot be pickled. The message contains the value's name.
    """
    for name, value in values.items():
        try:
            cloudpickle.dumps(value)
        except Exception as exc:
            raise TransferError(
                f"{name!r} ({type(value).__name__}) cannot be pushed: {exc}. Push the data it is made from and build "
                "it in a %%distributed cell."
            ) from exc
    blob: bytes = cloudpickle.dumps(dict(values))
    return blob


async def push(group: RankGroup, kernels: Sequence[RankKernel], blob: bytes, *, broadcast: bool) -> None:
    """Set pickled values as variables on ranks.

    With `broadcast`, a pickle of `BROADCAST_BYTES` or more is sent only to rank 0, which broadcasts it to the others.
    """
    key = uuid.uuid4().hex
    through_root = broadcast and len(blob) >= BROADCAST_BYTES and len(kernels) > 1
    for kernel in kernels[:1] if through_root else kernels:
        for start in range(0, len(blob), CHUNK_BYTES):
            await kernel.push(PUSH_TARGET, {"key": key}, blob[start : start + CHUNK_BYTES])
    call = rank_calls.accept_broadcast if through_root else rank_calls.accept
    await _ask(group, call(key, platform.python_version()), "%push", kernels)


async def _ask(group: RankGroup, call: RankCall[None], what: str, kernels: Sequence[RankKernel]) -> None:
    try:
        await group.control(call, what=what, timeout=TRANSFER_SECONDS, kernels=kernels)
    except RankDiedError:
        raise
    except RankError as exc:
        raise TransferError(str(exc)) from exc


class Pulls:
    """Collects the values that ranks send for ``%pull``."""

    def __init__(self) -> None:
        self._blobs: dict[int, tuple[bytes, str]] = {}

    def put(self, rank: int, blob: bytes, python: str) -> None:
        """Store values that a rank pickled with this version of Python."""
        self._blobs[rank] = blob, python

    async def pull(
        self, group: RankGroup, kernels: Sequence[RankKernel], names: Sequence[str]
    ) -> dict[int, dict[str, Any]]:
        """Return variables of ranks, indexed by rank and name.

        Unpickling is safe here, because the pickles come from the user's own kernels, which no other user can access.
        """
        await _ask(group, rank_calls.give(list(names)), "%pull", kernels)
        return {kernel.rank: self._unpack(kernel.rank, names) for kernel in kernels}

    def _unpack(self, rank: int, names: Sequence[str]) -> dict[str, Any]:
        blob, python = self._blobs.pop(rank)
        if problem := foreign_code(blob, python):
            raise TransferError(
                f"{', '.join(names)} of rank {rank} cannot be used here: {problem}. Pull only data, such as arrays "
                "or a state_dict, or use the same Python in the notebook and on the workers."
            )
        try:
            values: dict[str, Any] = pickle.loads(blob)
        except Exception as exc:
            raise TransferError(
                f"{', '.join(names)} of rank {rank} cannot be unpickled here: {exc}. Make the classes of the values "
                "importable in this kernel too, or pull plain data."
            ) from exc
        return values
