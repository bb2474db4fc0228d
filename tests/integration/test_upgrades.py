"""Tests that a hub starts on the state of the oldest release, refuses that of a newer one, and survives kills."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from hub.process import HubProcess, HubProcessError, end_leftovers, wait_until
from spawner_config.local import free_port
from spawner_config.roles import NOTEBOOK_SCOPES
from spawner_config.settings import Settings
from spawner_config.upgrades.version import NAME, StateVersion
from tests.hub import run_hub
from tests.integration.test_accounts import CONFIG
from tests.old_state import NEW_REVISION, OLD_REVISION, PASSWORD, SERVERS, USERS, revision_in, write_old_state

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hub import RunningHub

UPGRADE_SECONDS = 4.0
"""About how long the upgrade of the database takes, from the first file until the hub continues with its start."""
START_SECONDS = 60.0
QUICK_KILLS = 2


@pytest.fixture
def state(tmp_path: Path) -> Path:
    write_old_state(tmp_path / "state")
    return tmp_path / "state"


def database_of(state: Path) -> Path:
    return state / "jupyterhub.sqlite"


def copies(state: Path) -> list[Path]:
    return sorted(state.glob("jupyterhub-*.sqlite"))


def assert_whole(hub: RunningHub) -> None:
    """Check that the users can log in with their passwords, and that the hub knows their servers and tokens."""
    tokens = {user: hub.browser(user, PASSWORD).make_token(NOTEBOOK_SCOPES) for user in USERS}
    answer = hub.api(tokens["ada"], "GET", "/hub/api/users/ada?include_stopped_servers").json()
    assert answer["created"] == "2026-11-23T12:35:15.642823Z"
    assert set(answer["servers"]) == SERVERS
    assert answer["servers"][""]["user_options"] == {"profile": "cpu-2"}
    assert revision_in(database_of(hub.state)) == NEW_REVISION


def test_a_hub_starts_on_the_state_of_the_oldest_release(state: Path) -> None:
    with run_hub(state, config=CONFIG) as hub:
        assert_whole(hub)
        [kept] = copies(state)
        assert revision_in(kept) == OLD_REVISION
        written = StateVersion.read(state)
        assert written
        assert written.revision == NEW_REVISION
        hub.browser("grace", PASSWORD).start_notebook()


@pytest.mark.parametrize("newer", ["version", "schema"])
def test_the_state_of_a_newer_version_is_refused_and_nothing_is_changed(state: Path, newer: str) -> None:
    if newer == "version":
        StateVersion(version="99.0.0", revision=OLD_REVISION).write(state)
        message = r"Version 99\.0\.0 of Farandole has used the hub's state.*Use version 99\.0\.0 or newer, or restore"
    else:
        with closing(sqlite3.connect(database_of(state))) as connection:
            connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
            connection.commit()
        message = r"has the schema ffffffffffff, which version .* does not know.*make restore"
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    with pytest.raises(HubProcessError, match=message), run_hub(state, config=CONFIG):
        pass
    assert {name: (state / name).read_bytes() for name in before} == before
    assert copies(state) == []
    assert (state / NAME).exists() == (newer == "version")


def kill_during_upgrade(state: Path, moment: float) -> None:
    """Start a hub, and kill it ``moment`` seconds after the first sign of its upgrade: the whole group or the hub."""
    process = HubProcess(Settings(port=free_port(), state=state), CONFIG)
    try:
        wait_until(lambda: any(state.glob(".upgrade-*")) or process.process.poll() is not None, START_SECONDS)
        with suppress(TimeoutError):
            wait_until(lambda: process.process.poll() is not None, moment)
        assert process.process.poll() is None, process.log_tail()
        # A kill of the hub alone leaves the process of its migrations, which continues.
        kill = os.killpg if moment < UPGRADE_SECONDS / 2 else os.kill
        kill(process.process.pid, signal.SIGKILL)
        process.process.wait(10)
    finally:
        process.release()
        end_leftovers(state, timeout=0)


@pytest.mark.parametrize(
    ("seed", "kills"), [(25, QUICK_KILLS), pytest.param(26, 50, marks=[pytest.mark.release, pytest.mark.timeout(2400)])]
)
def test_kills_during_the_upgrade_leave_a_state_that_starts(tmp_path: Path, seed: int, kills: int) -> None:
    moments = random.Random(seed)
    for number in range(kills):
        state = tmp_path / str(number)
        write_old_state(state)
        begun = time.monotonic()
        moment = moments.uniform(0, UPGRADE_SECONDS)
        kill_during_upgrade(state, moment)
        print(f"kill {number}: {moment:.2f} s after the first sign, {time.monotonic() - begun:.1f} s after the start")
        assert revision_in(database_of(state)) in {OLD_REVISION, NEW_REVISION}
        # The quick test starts the hub only after its last kill.
        if kills > QUICK_KILLS or number == kills - 1:
            with run_hub(state, config=CONFIG) as hub:
                assert_whole(hub)
            [kept] = copies(state)
            assert revision_in(kept) == OLD_REVISION
            assert list(state.glob(".upgrade-*")) == []
