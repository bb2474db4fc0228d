"""Errors that Farandole raises for its users::

    FarandoleError
    ├── UsageError           an argument is wrong, or the operation is not possible now (also a ValueError)
    ├── NoClusterError       there is no cluster to use, or no hub on which to start one
    ├── HubError             the hub refused a request or could not be reached
    │   ├── HubUnreachableError
    │   ├── PermissionDeniedError
    │   ├── QuotaError
    │   └── HubBusyError     too many servers are starting, so the hub accepts no more for now
    ├── WorkerStartError     a worker did not start, could not be reached, or refused a request
    ├── ClusterExistsError   a cluster with that name already exists
    ├── DeadlineError        an operation did not finish in time
    ├── RankError            a cell failed on at least one rank
    │   └── RankDiedError    a rank's process or worker ended
    ├── TransferError        a value or a folder could not be copied
    ├── ReportError          fd.report or fd.result does not accept a value (also a TypeError)
    ├── RunNotFoundError     no run, or more than one, matches an id or a name
    │   └── RunUnreadableError   a file of the run cannot be read
    ├── EndpointError        an endpoint does not answer, or refuses a request
    │   ├── EndpointNotFoundError  there is no endpoint with this name
    │   └── EndpointExistsError    an endpoint with this name already exists
    ├── ModelError           a model cannot be saved, exported or removed
    │   ├── ModelNotFoundError   there is no model, or no version of it, with this name
    │   ├── ModelDamagedError    a file of the model is missing or has changed
    │   └── ModelInUseError      the model is being served
    ├── RegistryError        a registry of images does not answer, or refuses a request
    │   └── RegistryDeniedError  the registry asks for a login, or does not let the user do something
    ├── DataSetError         a version of a data set cannot be written or read, or has changed
    ├── SnapshotError        a snapshot cannot be taken, read or restored
    └── StreamError          a stream, or the server that has it, cannot be used

Every message says what is missing or wrong and how to fix it.
"""

from __future__ import annotations


class FarandoleError(Exception):
    """Base class of all errors that Farandole raises for its users."""

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook, because this package's frames do not help users. Called by IPython."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(FarandoleError, ValueError):
    """Raised when an argument has an invalid value, or when an operation is not possible in the current state."""


class NoClusterError(FarandoleError):
    """Raised when there is no cluster to use, or no hub on which to start one."""


class HubError(FarandoleError):
    """Raised when the hub refuses a request. Contains the hub's reason, and the HTTP status if there is one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class HubUnreachableError(HubError):
    """Raised when there is no response from the hub's address."""


class PermissionDeniedError(HubError):
    """Raised when the token has expired or lacks a scope."""


class QuotaError(HubError):
    """Raised when the hub's limits do not allow any more workers."""


class HubBusyError(HubError):
    """Raised when the hub does not accept a request because too many servers are starting.

    Contains the number of seconds after which the request can be repeated.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_seconds: float) -> None:
        super().__init__(message, status=status)
        self.retry_seconds = retry_seconds


class WorkerStartError(FarandoleError):
    """Raised when a worker does not start, is unreachable, or refuses a request. Contains the HTTP status, if any."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ClusterExistsError(FarandoleError):
    """Raised when a cluster with the same name is already running."""


class DeadlineError(FarandoleError):
    """Raised when an operation does not finish before its deadline. The message describes the operation."""


class RankError(FarandoleError):
    """Raised when a cell fails on at least one rank. Contains one traceback for each distinct error."""

    def __init__(self, message: str, *, traceback: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.traceback = traceback
        self.ranks = ranks

    def _render_traceback_(self) -> list[str]:
        """Show the ranks' tracebacks in a notebook instead of the driver's traceback. Called by IPython."""
        return [*([self.traceback] if self.traceback else []), f"{type(self).__name__}: {self}"]


class RankDiedError(RankError):
    """Raised when a rank's process or worker ends while the rank is running a cell."""


class TransferError(FarandoleError):
    """Raised when a value or a folder cannot be copied to or from a rank."""


class ReportError(FarandoleError, TypeError):
    """Raised when ``fd.report`` or ``fd.result`` does not accept a value. The message contains the value's key."""


class RunNotFoundError(FarandoleError):
    """Raised when no run, or more than one, matches an id or a name."""


class RunUnreadableError(RunNotFoundError):
    """Raised when a file of a run cannot be read. The message contains the name of the file and the reason."""


class EndpointError(FarandoleError):
    """Raised when an endpoint does not answer, or refuses a request. The message contains the reason."""


class EndpointNotFoundError(EndpointError):
    """Raised when there is no endpoint with a name."""


class EndpointExistsError(EndpointError):
    """Raised when an endpoint with the same name is already running."""


class ModelError(FarandoleError):
    """Raised when a model cannot be saved, exported or removed. The message contains the reason."""


class ModelNotFoundError(ModelError):
    """Raised when there is no model, or no version of it, with a name."""


class ModelDamagedError(ModelError):
    """Raised when a file of a model is missing, cannot be read, or has changed since the model was saved."""


class ModelInUseError(ModelError):
    """Raised when a model cannot be removed because a server serves it."""


class RegistryError(FarandoleError):
    """Raised when a registry of images does not answer, or refuses a request. The message contains the reason."""


class RegistryDeniedError(RegistryError):
    """Raised when a registry asks for a login, or does not let the user do something."""


class SnapshotError(FarandoleError):
    """Raised when a snapshot cannot be taken, read or restored. The message contains the reason."""


class DataSetError(FarandoleError):
    """Raised when a version of a data set cannot be written or read, or differs from its manifest."""


class StreamError(FarandoleError):
    """Raised when a stream, or the server that has it, cannot be used. The message contains the reason."""


class DaskError(FarandoleError):
    """Raised when Dask cannot run on the ranks. The message contains the reason."""
