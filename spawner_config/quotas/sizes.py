"""FARANDOLE_HOME_SIZE: the size of all users' homes, and of those of some users and groups."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, InstanceOf

from spawner_config.settings import SettingsError
from spawner_config.shares import items

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

VARIABLE = "FARANDOLE_HOME_SIZE"
WANTED = "sizes such as '10G', or '10G, ada: 50G, @vision: 100G' with the sizes of a user and of a group"
SIZE = re.compile(r"([1-9][0-9]*)([MGT])i?")
BYTES = {"M": 2**20, "G": 2**30, "T": 2**40}
CLAIM_BYTES = 10 * 2**30
"""The size of homes on Kubernetes without the setting, because each claim has a size."""


@dataclass(frozen=True, kw_only=True)
class HomeSizes:
    """The sizes of homes in bytes: of all users, or None for no limit, and those of single users and groups."""

    all: int | None = None
    users: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)

    def of(self, user: str, groups: Collection[str]) -> int | None:
        """Return the size of a user's home; ``groups`` are the names of the user's JupyterHub groups."""
        if user in self.users:
            return self.users[user]
        return max((size for group, size in self.groups.items() if group in groups), default=self.all)

    def of_spawner(self, spawner: Any) -> int | None:
        """Return the size of the home of a spawner's user."""
        return self.of(spawner.user.name, {group.name for group in spawner.user.groups})

    def __bool__(self) -> bool:
        """Whether any home has a limit."""
        return self.all is not None or bool(self.users or self.groups)


def parse_sizes(text: str, default: int | None = None) -> HomeSizes:
    """Return the sizes in a setting, with ``default`` for all users if it has no such size. Raises `SettingsError`."""
    found: dict[str, int] = {}
    for item in items(text):
        name, colon, size = item.rpartition(":")
        # JupyterHub converts user names to lower case.
        name = name.strip().lower() if not name.strip().startswith("@") else name.strip()
        match = SIZE.fullmatch(size.strip())
        if match is None or (colon and name in {"", "@"}):
            raise SettingsError(f"{VARIABLE} has {item!r}. It must be {WANTED}.")
        if name in found:
            raise SettingsError(f"{VARIABLE} has two sizes for {name or 'all users'}. Remove one of them.")
        found[name] = int(match[1]) * BYTES[match[2]]
    groups = {name[1:]: size for name, size in found.items() if name.startswith("@")}
    users = {name: size for name, size in found.items() if name and not name.startswith("@")}
    return HomeSizes(all=found.get("", default), users=users, groups=groups)


def quantity(size: int) -> str:
    """Return a size for a claim on Kubernetes, such as ``10Gi``."""
    return f"{size >> 30}Gi" if size % BYTES["G"] == 0 else f"{size >> 20}Mi"


Sizes = Annotated[InstanceOf[HomeSizes], BeforeValidator(parse_sizes)]
"""The type of the setting in deployments whose homes have no limit by default."""
ClaimSizes = Annotated[InstanceOf[HomeSizes], BeforeValidator(partial(parse_sizes, default=CLAIM_BYTES))]
"""The type of the setting on Kubernetes."""
