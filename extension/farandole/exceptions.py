"""Errors that Farandole raises for its users::

    FarandoleError
    ├── UsageError           a wrong argument (also a ValueError)
    ├── NoClusterError       a cell needs a cluster and there is none
    ├── HubError             the hub refused or could not be reached
    │   ├── HubUnreachableError
    │   ├── PermissionDeniedError
    │   ├── QuotaError
    │   └── HubBusyError     so many servers start that the hub takes no more for now
    ├── WorkerStartError     a worker failed or was too slow to start
    ├── ClusterExistsError   a cluster of that name exists already
    ├── DeadlineError        an answer did not come in time
    ├── RankError            a cell failed on at least one rank
    │   └── RankDiedError    a rank's process or its worker ended
    ├── TransferError        a value could not be pushed or pulled
    ├── ReportError          fd.report or fd.result does not accept a value (also a TypeError)
    └── RunNotFoundError     no run, or more than one, has that id or name
        └── RunUnreadableError   a file of the run cannot be read

Every message names what is missing or wrong, and the remedy.
"""

from __future__ import annotations


class FarandoleError(Exception):
    """Base of every error that Farandole raises for its users."""

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook (IPython's hook): the frames of this package do not help users."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(FarandoleError, ValueError):
    """Raised when an argument has an invalid value."""


class NoClusterError(FarandoleError):
    """Raised when a cell needs a cluster and there is none."""


class HubError(FarandoleError):
    """Raised when the hub refuses a request; has the hub's reason, and its HTTP status if there is one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class HubUnreachableError(HubError):
    """Raised when nothing answers at the hub's address."""


class PermissionDeniedError(HubError):
    """Raised when the token has expired or lacks a scope."""


class QuotaError(HubError):
    """Raised when the hub's limits allow no further worker."""


class HubBusyError(HubError):
    """Raised when too many servers are starting and the hub accepts no more; has the seconds until a retry."""

    def __init__(self, message: str, *, status: int | None = None, retry_seconds: float) -> None:
        super().__init__(message, status=status)
        self.retry_seconds = retry_seconds


class WorkerStartError(FarandoleError):
    """Raised when a worker fails to start, is too slow to start, or refuses a request; has the HTTP status if any."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ClusterExistsError(FarandoleError):
    """Raised when a cluster of the same name already runs."""


class DeadlineError(FarandoleError):
    """Raised when an answer does not come before a deadline; names the operation."""


class RankError(FarandoleError):
    """Raised when a cell fails on at least one rank; has the traceback of the rank that failed first."""

    def __init__(self, message: str, *, traceback: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.traceback = traceback
        self.ranks = ranks

    def _render_traceback_(self) -> list[str]:
        """Show the rank's traceback in a notebook (IPython's hook) instead of the driver's."""
        return [*([self.traceback] if self.traceback else []), f"{type(self).__name__}: {self}"]


class RankDiedError(RankError):
    """Raised when a rank's process or its worker ends while a cell runs on it."""


class TransferError(FarandoleError):
    """Raised when a value cannot be pushed to or pulled from a rank."""


class ReportError(FarandoleError, TypeError):
    """Raised when ``fd.report`` or ``fd.result`` does not accept a value; names its key."""


class RunNotFoundError(FarandoleError):
    """Raised when no run, or more than one, matches an id or a name."""


class RunUnreadableError(RunNotFoundError):
    """Raised when a file of a run cannot be read; names the file and the reason."""
