"""The exception for refused requests."""

from __future__ import annotations


class RefusedError(Exception):
    """Raised when a request is not admitted; the client receives the message, which says what was refused and why."""

    def __init__(self, sentence: str, status: int = 403) -> None:
        super().__init__(sentence)
        self.status = status
