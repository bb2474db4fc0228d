"""Finds out which kind of hub the operator's machine and folder have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hub.backup.place import BackupError
from hub.backup.sites.compose import ComposeSite
from hub.backup.sites.kubernetes import KubernetesSite
from hub.doctor.deployment import ENV_FILE
from spawner_config.settings import state_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hub.backup.sites.site import Site

KINDS = ("local", "compose", "kubernetes")


def find_site(kind: str, folder: Path, environ: Mapping[str, str]) -> Site:
    """Return the hub of a kind, or the only one that is there; raises `BackupError`."""
    kinds = [kind] if kind else _found(folder, environ)
    if len(kinds) != 1:
        found = " and ".join(kinds) or "no hub"
        raise BackupError(f"There is {found} here. Choose one with SITE=, which is one of: {', '.join(KINDS)}.")
    if kinds == ["local"]:
        # Only this kind needs the installed packages on the operator's machine.
        from hub.backup.sites.local import LocalSite

        return LocalSite(environ)
    return ComposeSite(folder, environ) if kinds == ["compose"] else KubernetesSite(folder, environ)


def _found(folder: Path, environ: Mapping[str, str]) -> list[str]:
    there = {"local": state_folder(environ), "compose": folder / ENV_FILE}
    return [kind for kind, path in there.items() if path.exists()]
