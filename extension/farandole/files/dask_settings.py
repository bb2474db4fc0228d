"""Dask settings that the driver and the ranks share."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Security

LOGGER = "distributed"
LOG_SETTINGS = ("logging", "logging-file-config")
"""Keys of the Dask configuration for logging. They may be at the top level or under ``distributed``."""


class MemorySecurity(Security):
    """Settings of encrypted connections whose certificates and keys are texts, which are not written to the disk.

    OpenSSL reads them only from files, and Dask makes those in a temporary folder whenever a server or a client starts.
    This class makes them in memory. Systems other than Linux have no such files; Dask's own way is used there.
    """

    def __init__(self, **credentials: str) -> None:
        super().__init__(require_encryption=True, **credentials)  # type: ignore[no-untyped-call]

    def _get_tls_context(self, tls: dict[str, Any], purpose: ssl.Purpose) -> ssl.SSLContext:
        if not hasattr(os, "memfd_create"):
            return self._context(tls, purpose)
        with _memory_file(tls["cert"]) as cert, _memory_file(tls["key"]) as key:
            return self._context({**tls, "cert": cert, "key": key}, purpose)

    def _context(self, tls: dict[str, Any], purpose: ssl.Purpose) -> ssl.SSLContext:
        context: ssl.SSLContext = super()._get_tls_context(tls, purpose)  # type: ignore[no-untyped-call]
        return context


@contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Yield the path of a file in memory. Only this process and its user can open it."""
    with os.fdopen(os.memfd_create("certificate"), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def log_errors_only() -> None:
    """Let Dask log only errors in this process, unless the user has set in Dask's configuration what it logs."""
    places = (place for name in LOG_SETTINGS for place in (name, f"{LOGGER}.{name}"))
    if all(dask.config.get(place, None) is None for place in places):
        logging.getLogger(LOGGER).setLevel(logging.ERROR)
