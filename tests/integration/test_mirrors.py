"""A hub mirrors itself to another real hub, through the proxy of that hub, with the token of its account there."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import pytest

from hub.services.snapshots.mirrors.mirror import STATE
from spawner_config.snapshots.mirrors import TOKENS
from tests.clients.mirrors import HubFiles
from tests.hub import run_hub

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hub import RunningHub

MIRRORS = "/services/snapshots/mirrors"


@pytest.mark.release
def test_a_hub_mirrors_itself_to_another_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = secrets.token_hex(32)
    monkeypatch.setenv(TOKENS, f"lab:{token}")
    # restic does not find names below localhost, so this hub has an IP address.
    with run_hub(tmp_path / "state", one_origin=True) as other:
        asyncio.run(_mirror(HubFiles(tmp_path / "hub"), other, token))
        assert other.api(token, "GET", f"{MIRRORS}/ada/config").status_code == 200
        assert other.api(other.token_for("ada"), "GET", f"{MIRRORS}/ada/config").status_code == 401
        # The account has no other rights.
        assert other.api(token, "GET", "/hub/api/users").status_code == 403
        assert other.api(token, "POST", "/services/snapshots/open").status_code == 401
    assert (other.state / "snapshots" / ".mirrors" / "lab" / "ada" / "config").exists()


async def _mirror(hub: HubFiles, other: RunningHub, token: str) -> None:
    await hub.take("ada", b"first")
    mirror = hub.mirror(f"rest:{other.url}{MIRRORS}", user="mirror-lab", secret=token)
    assert await mirror.run() == []
    assert await mirror.check(read_data=True) == ({STATE: 1, "ada": 1}, [])
