"""Limits what a container may write outside of its volumes, such as to /tmp, on an engine that can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tornado.log import app_log

if TYPE_CHECKING:
    from docker.errors import APIError

OPTION = "storage_opt"
UNSUPPORTED = "storage-opt"
"""A part of the engine's message if its storage driver or its disk does not support the option."""


class ScratchLimit:
    """FARANDOLE_SCRATCH, for all containers of a hub. An empty ``size`` is no limit."""

    def __init__(self, size: str) -> None:
        self._size = size

    def add_to(self, host_config: dict[str, Any]) -> dict[str, Any]:
        """Return the engine client's options for a container with the limit, if there is one."""
        others = {key: value for key, value in host_config.items() if key != OPTION}
        return {**others, OPTION: {"size": self._size}} if self._size else others

    def drop_if_unsupported(self, refused: APIError) -> bool:
        """Return whether the engine has refused a container because of the limit, which is then no longer set."""
        reason = str(refused.explanation)
        if not self._size or UNSUPPORTED not in reason:
            return False
        app_log.warning(
            "The engine cannot limit what containers write outside of their volumes (%s), so FARANDOLE_SCRATCH has no "
            "effect. See docs/how-to/quotas.md.",
            reason,
        )
        self._size = ""
        return True
