"""The interface between a soak test and a hub: inject faults, read the progress of runs, and find leftovers."""

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
        """Start a driver, which starts a cluster with this name and trains on it."""

    @abstractmethod
    def hit(self, fault: Fault, ranks: Sequence[Step]) -> None:
        """Inject a fault. ``ranks`` holds the last step of each rank, in the order of ranks.

        Raises KeyError or ProcessLookupError if the target no longer exists.
        """

    @abstractmethod
    def hold(self, fault: Fault) -> None:
        """Renew a lasting fault. For example, fill the disk again after files were removed from it."""

    @abstractmethod
    def heal(self, fault: Fault) -> None:
        """Undo a lasting fault. For example, free the disk or reconnect the network."""

    @abstractmethod
    def lives(self) -> list[Life]:
        """Return the steps that the run's ranks have completed so far."""

    @abstractmethod
    def run_folder(self) -> Path | None:
        """Return a folder with the current files of the run, or None if the run has no files yet."""

    @abstractmethod
    def outcome(self) -> str | None:
        """Return how the run ended, or None while it is running.

        Raises RuntimeError if the driver ended without recording an outcome.
        """

    @abstractmethod
    def ask_to_end(self) -> None:
        """Make the training end at its next step."""

    @abstractmethod
    def give_up(self) -> None:
        """Stop the driver and the cluster, unless they have already ended."""

    @abstractmethod
    def left(self) -> list[str]:
        """Wait for the run's cleanup, then return everything that remains apart from the run's folder."""

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Copy the evidence from the run (run folder, journals and logs) to ``folder``."""
