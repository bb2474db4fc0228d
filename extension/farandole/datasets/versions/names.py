"""Names of versions of data sets, such as ``imagenet@2``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farandole.exceptions import UsageError

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""The name of a data set is a part of the names of its volumes and of its claims on Kubernetes."""
NUMBER = re.compile(r"[1-9][0-9]{0,8}")
VOLUME = re.compile(rf"(?P<name>{NAME.pattern})-v(?P<number>{NUMBER.pattern})")


@dataclass(frozen=True, kw_only=True)
class DataVersion:
    """One version of a data set."""

    name: str
    number: int

    @property
    def volume(self) -> str:
        """The name of the volume, or of the claim on Kubernetes, that contains the version."""
        return f"{self.name}-v{self.number}"

    def __str__(self) -> str:
        return f"{self.name}@{self.number}"


def parse_version(text: str) -> DataVersion:
    """Parse a name with a version. Raises UsageError if it is not valid."""
    name, _, number = text.partition("@")
    if not NUMBER.fullmatch(number):
        raise UsageError(f"{text!r} is not a version of a data set; write imagenet@2, for example")
    return DataVersion(name=check_name(name), number=int(number))


def parse_volume(text: str) -> DataVersion | None:
    """Return the version that a volume with this name contains, or None if it contains none."""
    found = VOLUME.fullmatch(text)
    return DataVersion(name=found["name"], number=int(found["number"])) if found else None


def check_name(name: str) -> str:
    """Return the name of a data set. Raises UsageError if it is not valid."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a data set: it has 1 to 40 lower-case letters, digits and inner hyphens, "
            "such as imagenet"
        )
    return name
