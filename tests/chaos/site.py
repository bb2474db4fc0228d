"""The site of a soak: the faults that it can inject, and what remains afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.cell import Life, Step
    from tests.chaos.schedule import Fault


class Site(ABC):
    """A hub with one run after another; each kind of fault is a method with its name."""

    backends: ClassVar[tuple[str, ...]] = ("horovod", "torch")

    @property
    @abstractmethod
    def kinds(self) -> Sequence[str]:
        """The kinds of faults that this site can inject, in a fixed order."""

    @abstractmethod
    def begin(self, name: str, backend: str, workers: int) -> None:
        """Let a driver start a cluster with this name and train on it."""

    @abstractmethod
    def hit(self, fault: Fault, ranks: Sequence[Step]) -> None:
        """Inject a fault; ``ranks`` are the last steps of the ranks 0, 1, ...

        Raises: KeyError, ProcessLookupError if the target no longer exists.
        """

    @abstractmethod
    def hold(self, fault: Fault) -> None:
        """Repeat a lasting fault: a disk has to stay full although files are removed from it."""

    @abstractmethod
    def heal(self, fault: Fault) -> None:
        """Undo a lasting fault: free the disk, connect the network."""

    @abstractmethod
    def lives(self) -> list[Life]:
        """Return the steps that the run's ranks have done so far."""

    @abstractmethod
    def run_folder(self) -> Path | None:
        """Return the run's folder as it is now, or None if there is none yet."""

    @abstractmethod
    def outcome(self) -> str | None:
        """Return how the run ended, or None while it runs. Raises: RuntimeError if its driver ended before it."""

    @abstractmethod
    def ask_to_end(self) -> None:
        """End the training at its next step."""

    @abstractmethod
    def give_up(self) -> None:
        """Stop driver and cluster, unless they have ended."""

    @abstractmethod
    def left(self) -> list[str]:
        """Return what remains of the run besides its folder, after time to clean up."""

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Copy all evidence of the run to that folder: its folder, journals and logs."""
