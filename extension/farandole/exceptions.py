"""Errors that Farandole raises for its users.

FarandoleError
├── UsageError           a wrong argument (also a ValueError)
├── NoClusterError       a cell needs a cluster and there is none
├── HubError             the hub refused or could not be reached
│   ├── HubUnreachableError
│   ├── PermissionDeniedError
│   ├── QuotaError
│   └── HubBusyError     so many servers start that the hub takes no more for now
├── WorkerStartError     a worker failed or was too slow to start
├── ClusterExistsError   a cluster of that name is there already
├── DeadlineError        something did not answer in time
├── RankError            a cell failed on at least one rank
│   └── RankDiedError    a rank's process or its worker ended
├── TransferError        a value could not be pushed or pulled
├── ReportError          fd.report, fd.result got a value it cannot take (also a TypeError)
└── RunNotFoundError     no run has that id

Every message names what is missing or wrong and what to do about it.
"""

from __future__ import annotations


class FarandoleError(Exception):
    """Base of every error that Farandole raises for its users."""

    def _render_traceback_(self) -> list[str]:
        """Show the message alone in a notebook (IPython's hook): frames of this package would not help there."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(FarandoleError, ValueError):
    """Raised when an argument has a value that cannot work."""


class NoClusterError(FarandoleError):
    """Raised when a cell needs a cluster and none was started or attached."""


class HubError(FarandoleError):
    """Raised when the hub refuses a request; carries the hub's own reason and its HTTP status, where it gave one."""

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
    """Raised when so many servers start that the hub takes no more now; says in how many seconds to ask again."""

    def __init__(self, message: str, *, status: int | None = None, retry_seconds: float) -> None:
        super().__init__(message, status=status)
        self.retry_seconds = retry_seconds


class WorkerStartError(FarandoleError):
    """Raised when a worker fails or is too slow to start, or refuses a request; carries the refusal's HTTP status."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ClusterExistsError(FarandoleError):
    """Raised when a cluster of that name is running already."""


class DeadlineError(FarandoleError):
    """Raised when something did not answer within its deadline; names what was waited for."""


class RankError(FarandoleError):
    """Raised when a cell fails on at least one rank; the first rank's traceback comes first."""

    def __init__(self, message: str, *, traceback: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.traceback = traceback
        self.ranks = ranks

    def _render_traceback_(self) -> list[str]:
        """Show the rank's own traceback in a notebook (IPython's hook) instead of the driver's."""
        return [*([self.traceback] if self.traceback else []), f"{type(self).__name__}: {self}"]


class RankDiedError(RankError):
    """Raised when a rank's process or its worker ends while a cell runs on it."""


class TransferError(FarandoleError):
    """Raised when a value cannot be pushed to or pulled from a rank."""


class ReportError(FarandoleError, TypeError):
    """Raised when ``fd.report`` or ``fd.result`` gets a value that it cannot take; names the key."""


class RunNotFoundError(FarandoleError):
    """Raised when no run, or more than one, matches an id."""
