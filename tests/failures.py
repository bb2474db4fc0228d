"""Adds logs, descriptions and screenshots to the report of a failed test."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def attach(report: pytest.TestReport, title: str, read: Callable[[], str]) -> None:
    """Add a section with the text that ``read`` returns, or with the error that it raises.

    An error here must not leave the hook that calls this function, because pytest would then end all tests with an
    internal error and print no failure.
    """
    try:
        text = read()
    except Exception:  # noqa: BLE001 - the system under test may be in any state
        text = traceback.format_exc()
    report.sections.append((title, text))
