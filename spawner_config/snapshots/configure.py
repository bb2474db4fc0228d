"""Configures the hub's service for snapshots, and lets users and their notebook servers reach it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub.utils import maybe_future
from tornado.log import app_log

from spawner_config.lifecycle.folder_lock import end_holder
from spawner_config.lifecycle.idle import KEPT
from spawner_config.roles import is_notebook
from spawner_config.settings import ROOT, SettingsError
from spawner_config.snapshots.mirrors import MIRROR, MIRROR_SCOPE, TOKENS, MirrorSettings
from spawner_config.snapshots.record import service_folder
from spawner_config.snapshots.settings import ACCESS, PREFIX, SERVICE, SnapshotSettings, variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spawner_config.settings import Settings

PROGRAM = "restic"


def configure_snapshots(c: Any, settings: Settings, *, url: str, bind: str) -> None:
    """Configure the service unless FARANDOLE_SNAPSHOTS is "off" or restic is missing; raises `SettingsError`.

    ``url`` is the address at which the proxy reaches the service, ``bind`` the host or address at which it listens.
    """
    own = SnapshotSettings.from_environment(os.environ)
    mirrors = MirrorSettings.from_environment(os.environ)
    if own.snapshots == "off":
        if mirrors.snapshots_mirror or mirrors.snapshots_mirror_tokens:
            raise SettingsError(f"{MIRROR} and {TOKENS} need {PREFIX}=on, because the service for snapshots uses them.")
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if shutil.which(PROGRAM, path=path) is None:
        app_log.warning(
            "There is no program %s, so users have no snapshots. Run `make setup` in the checkout, or set "
            "FARANDOLE_SNAPSHOTS=off.",
            PROGRAM,
        )
        return
    end_holder(service_folder(settings.state))
    _add(c, "services", _service(settings, url, bind, path))
    _add(c, "extra_user_scopes", ACCESS)
    c.Spawner.server_token_scopes = with_access(c.Spawner.server_token_scopes)
    c.Spawner.pre_spawn_hook = with_variables(c.Spawner.get("pre_spawn_hook"), own.environment)
    _admit_mirrors(c, mirrors.accounts)


def with_access(scopes_of: Callable[[Any], list[str]]) -> Callable[[Any], list[str]]:
    """Return a function for ``c.Spawner.server_token_scopes`` that adds the access to snapshots for notebook servers.

    Workers and endpoints do not get it, because their machines and programs may not be trusted with a whole home.
    """

    def scopes(spawner: Any) -> list[str]:
        found = scopes_of(spawner)
        return [*found, ACCESS] if is_notebook(spawner.name) else found

    return scopes


def with_variables(before: Any, environment: dict[str, str]) -> Callable[[Any], Any]:
    """Return a ``pre_spawn_hook`` that calls the hook ``before``, and then adds to the environment of notebook servers.

    Their user owns the home. Workers and endpoints take no automatic snapshots.
    """

    async def hook(spawner: Any) -> None:
        if before:
            await maybe_future(before(spawner))
        if is_notebook(spawner.name):
            spawner.environment |= environment

    return hook


def _admit_mirrors(c: Any, accounts: Mapping[str, str]) -> None:
    """Create an account for each hub whose mirror this hub stores. Its token gives access to this mirror only."""
    if not accounts:
        return
    c.JupyterHub.custom_scopes = {
        **(c.JupyterHub.get("custom_scopes") or {}),
        MIRROR_SCOPE: {"description": "Add to the mirror of another hub, and read it"},
    }
    for name, token in accounts.items():
        _add(c, "services", {"name": name, "api_token": token})
    _add(c, "load_roles", {"name": "mirrors", "scopes": [MIRROR_SCOPE], "services": list(accounts)})


def _add(c: Any, key: str, entry: Any) -> None:
    c.JupyterHub[key] = [*(c.JupyterHub.get(key) or []), entry]


def _service(settings: Settings, url: str, bind: str, path: str) -> dict[str, Any]:
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    ours = {**variables(os.environ), "FARANDOLE_STATE": str(settings.state), "PATH": path, "PYTHONPATH": str(ROOT)}
    return {
        "name": SERVICE,
        "url": url,
        "command": [sys.executable, "-m", "hub.services.snapshots", bind],
        "environment": {**kept, **ours},
        # It has no page.
        "display": False,
    }
