"""What the consumer needs of a broker: the records of a stream, and a log of outputs that also knows the position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

MOST_RECORDS = 256
"""Records that are read, scored and appended together."""
MOST_BYTES = 8 * 2**20
"""The bytes of these records, unless a single one is larger. Parsed records take many times as much memory."""


class ConflictError(Exception):
    """Raised when another consumer has appended outputs."""


class UnavailableError(Exception):
    """Raised when the broker does not answer, or cannot do now what it is asked to."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a stream.

    Attributes:
        position: its place in the source. It identifies the record.
        body: its content.
        headers: what the producer has added, by name.
    """

    position: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Output:
    """What becomes of a record: its scores, or, if there is an ``error``, the record itself.

    Attributes:
        record: the record.
        body: the content of the output.
        label: the label of the record, for targets with ``{label}``.
        model: the version of the model that has scored it, such as ``iris:3``.
        error: why the record could not be scored, or an empty string.
    """

    record: Record
    body: bytes
    label: str = ""
    model: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Records in the order of the source, and how many records wait behind them, if this is known."""

    records: Sequence[Record]
    waiting: int | None = None


class Log(ABC):
    """A source of records and a log of their outputs, at the same broker. Use it as an asynchronous context manager.

    Each record has exactly one output in the log, in the order of the source. An output is appended together with the
    position of its record, and only if the log still ends where this object expects it. So neither a consumer that is
    killed nor two consumers at the same time lose a record or append two outputs of it. No memory of recent messages
    is needed for this, so it does not matter how long a consumer or the broker is away.

    All methods raise `UnavailableError` if the broker does not answer or refuses something for now, and `StreamError`
    if the user has to change something.
    """

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            # The context manager does not call `__aexit__` after this, so the connection would stay open.
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Connect to the broker, and create the streams that do not exist."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def position(self) -> str:
        """Return the position of the last record that has an output, or an empty string."""

    @abstractmethod
    async def seek(self) -> str:
        """Continue behind the last record that has an output, and return its position."""

    @abstractmethod
    async def read(self) -> Batch:
        """Return the next records, at most `MOST_RECORDS`, or none if none has come for some seconds."""

    @abstractmethod
    async def append(self, outputs: Sequence[Output]) -> None:
        """Append the outputs of the records that `read` has returned.

        Raises ConflictError if another consumer has appended outputs since `seek`. A part may then be appended.
        """
