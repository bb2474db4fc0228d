"""What a check found, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from textwrap import TextWrapper

WIDTH = 118
INDENT = " " * 23


class Level(StrEnum):
    """How bad it is: a fault keeps the hub, or what `.env` asks for, from working; a warning does not."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result line: the ``check``, what was ``found``, and how to mend it, each line of ``remedy`` by itself."""

    level: Level
    check: str
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        """Refuse a complaint without a remedy."""
        if (self.level is Level.OK) == bool(self.remedy):
            raise ValueError(f"{self.check}: a remedy belongs to warnings and faults, and to nothing else")

    def text(self) -> str:
        """Return it for the terminal; remedies keep their lines, since people copy commands from there."""
        head = f"{self.level:<9}{self.check:<14}"
        # Names and paths stay whole, so that they can be copied.
        wrapper = TextWrapper(
            WIDTH, initial_indent=head, subsequent_indent=INDENT, break_on_hyphens=False, break_long_words=False
        )
        lines = wrapper.wrap(self.found)
        return "\n".join([*lines, *(f"{INDENT}-> {line}" for line in self.remedy.splitlines())])


def ok(check: str, found: str) -> Finding:
    """Return that all is well."""
    return Finding(level=Level.OK, check=check, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return what the hub can live with."""
    return Finding(level=Level.WARNING, check=check, found=found, remedy=remedy)


def fault(check: str, found: str, remedy: str) -> Finding:
    """Return what must be mended."""
    return Finding(level=Level.FAULT, check=check, found=found, remedy=remedy)
