"""The one error of the filter."""

from __future__ import annotations


class RefusedError(Exception):
    """Raised when a request is not admitted; its sentence says what was refused and why, and reaches the client."""

    def __init__(self, sentence: str, status: int = 403) -> None:
        super().__init__(sentence)
        self.status = status
