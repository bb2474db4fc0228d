"""Where a soak takes place: what can be hit there, and what is left behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.cell import Life, Step
    from tests.chaos.schedule import Fault


class Site(ABC):
    """A hub, and one run after another on it; what a fault of each kind does is a method named after it."""

    backends: ClassVar[tuple[str, ...]] = ("horovod", "torch")

    @property
    @abstractmethod
    def kinds(self) -> Sequence[str]:
        """The kinds of faults that can be done here, in an order that never changes."""

    @abstractmethod
    def begin(self, name: str, backend: str, workers: int) -> None:
        """Have a driver start a cluster of this name, and the training on it."""

    @abstractmethod
    def hit(self, fault: Fault, ranks: Sequence[Step]) -> None:
        """Do a fault; ``ranks`` are the last steps of the ranks 0, 1, ...

        Raises: KeyError, ProcessLookupError where the one that is hit is no more.
        """

    @abstractmethod
    def hold(self, fault: Fault) -> None:
        """Keep a fault up that lasts: a disk stays full although files are removed from it."""

    @abstractmethod
    def heal(self, fault: Fault) -> None:
        """Undo what a fault has done for a time: free the disk, connect the network again."""

    @abstractmethod
    def lives(self) -> list[Life]:
        """Return what the ranks of the run have done so far."""

    @abstractmethod
    def run_folder(self) -> Path | None:
        """Return the run's own folder as it is now, or None before there is one."""

    @abstractmethod
    def outcome(self) -> str | None:
        """Return how the run has ended, or None. Raises: RuntimeError where its driver ended before it."""

    @abstractmethod
    def ask_to_end(self) -> None:
        """Have the training end at its next step."""

    @abstractmethod
    def give_up(self) -> None:
        """Stop driver and cluster, whatever they do; nothing happens where they have ended."""

    @abstractmethod
    def left(self) -> list[str]:
        """Return what is left of the run besides its folder, once it had time to go."""

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Copy all that tells of the run there: its folder, journals and logs."""
