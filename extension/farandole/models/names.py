"""Names of models, such as ``iris``, ``iris:3``, ``iris:latest`` and, in a group's folder, ``vision/iris:3``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farandole.exceptions import UsageError

LATEST_VERSION = "latest"
NAME = re.compile(r"(?:(?P<group>[a-z0-9][a-z0-9-]{0,39})/)?(?P<model>[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?)")
"""The name of a model is a part of the URL of its endpoint and of the name of its server."""
VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, kw_only=True)
class ModelName:
    """The name of a model. ``group`` is empty for a model in the user's own store."""

    model: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.group}/{self.model}" if self.group else self.model


def parse_name(text: object) -> ModelName:
    """Parse a name without a version. Raises UsageError if it is not valid."""
    match = NAME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UsageError(
            f"{text!r} cannot be the name of a model: it has 1 to 24 lower-case letters, digits and inner hyphens, "
            "such as iris, or begins with the name of a group, such as vision/iris"
        )
    return ModelName(model=match["model"], group=match["group"] or "")


def parse_key(text: str) -> tuple[ModelName, int | None]:
    """Parse a name with an optional version. The version is None for the latest one.

    Raises UsageError if the text is not valid.
    """
    name, _, version = text.partition(":")
    if version in {"", LATEST_VERSION}:
        return parse_name(name), None
    if VERSION.fullmatch(version) is None:
        raise UsageError(f"{version!r} in {text!r} is not a version; write {name}:3, for example, or {name}:latest")
    return parse_name(name), int(version)
