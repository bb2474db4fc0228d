"""Converts errors into messages for the page, and assigns HTTP status codes to them."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.exceptions import (
    ClusterExistsError,
    FarandoleError,
    HubUnreachableError,
    NoClusterError,
    PermissionDeniedError,
    QuotaError,
    RunNotFoundError,
    UsageError,
)
from farandole.server.panel import wire

STATUS: dict[wire.ProblemCode, int] = {"invalid": 400, "refused": 403, "unknown": 404, "quota": 429, "unreachable": 502}
"""HTTP status codes of problems. All other problems have status code 409 (conflict)."""
CODES: tuple[tuple[type[FarandoleError], wire.ProblemCode], ...] = (
    (UsageError, "invalid"),
    (RunNotFoundError, "unknown"),
    (NoClusterError, "unknown"),
    (ClusterExistsError, "exists"),
    (QuotaError, "quota"),
    (PermissionDeniedError, "refused"),
    (HubUnreachableError, "unreachable"),
)


class RefusedError(FarandoleError):
    """Raised if the panel cannot perform the action that a page requests."""

    def __init__(self, code: wire.ProblemCode, message: str, *, runs: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.runs = list(runs)


def problem(error: FarandoleError) -> wire.Problem:
    """Return the message that reports an error to a page."""
    if isinstance(error, RefusedError):
        return {"code": error.code, "message": str(error), "runs": error.runs}
    code: wire.ProblemCode = next((code for kind, code in CODES if isinstance(error, kind)), "failed")
    return {"code": code, "message": str(error), "runs": []}
