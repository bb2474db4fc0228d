"""The interface of a soak test to a hub: inject faults, read the runs' progress, and find leftovers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.cell import Life, Step
    from tests.chaos.schedule import Fault


class Site(ABC):
    """A hub that executes one run after another, and the faults that can be injected into a run."""

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
        """Inject a fault; ``ranks`` holds the last step of each rank, in order.

        Raises: KeyError, ProcessLookupError if the target no longer exists.
        """

    @abstractmethod
    def hold(self, fault: Fault) -> None:
        """Renew a lasting fault, because a full disk has to stay full although files are removed from it."""

    @abstractmethod
    def heal(self, fault: Fault) -> None:
        """Undo a lasting fault, for example free the disk or reconnect the network."""

    @abstractmethod
    def lives(self) -> list[Life]:
        """Return the steps that the run's ranks have done so far."""

    @abstractmethod
    def run_folder(self) -> Path | None:
        """Return a folder with the current content of the run's folder, or None if there is none yet."""

    @abstractmethod
    def outcome(self) -> str | None:
        """Return how the run ended, or None while it is running. Raises: RuntimeError if the driver ended first."""

    @abstractmethod
    def ask_to_end(self) -> None:
        """Make the training end at the next step."""

    @abstractmethod
    def give_up(self) -> None:
        """Stop the driver and the cluster, unless they have already ended."""

    @abstractmethod
    def left(self) -> list[str]:
        """Wait for the run's cleanup, then return everything that still remains besides the run's folder."""

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Copy the evidence from the run (run folder, journals and logs) to that folder."""
