"""A real hub is backed up while users log in, and restored into an empty state folder; and backups that are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hub.backup.operations import list_backups
from hub.backup.swap import RUNNING, STAGED, finish_at_start
from spawner_config.settings import ROOT
from tests.clients.backups import PASSWORD_FILE, LocalHub, tree
from tests.hub import run_hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hub import RunningHub

USERS = ("ada", "grace", "otto")
KILLS = 25
"""The kills of each of the two commands."""
SECONDS = 120


def backup(hub: LocalHub, *words: str) -> subprocess.Popen[str]:
    """Start the program behind `make backup`."""
    return subprocess.Popen(
        [sys.executable, "-m", "hub.backup", "--site", "local", *words],
        cwd=ROOT,
        env={**os.environ, "FARANDOLE_STATE": str(hub.state), "PYTHONPATH": f"{ROOT}:{ROOT / 'extension'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(hub: LocalHub, *words: str) -> str:
    """Run the program, and return what it reports. Raises AssertionError if it fails."""
    process = backup(hub, *words)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return output + errors


def fail(hub: LocalHub, *words: str) -> str:
    """Run the program, which has to fail, and return the reason."""
    process = backup(hub, *words)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    return errors


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (folder := tmp_path / "backups").mkdir()
    return folder


def fill(hub: RunningHub, *users: str) -> None:
    """Log in, let the first user start a notebook server once, and write files into all homes."""
    for user in users:
        hub.browser(user)
        home = hub.state / "homes" / user
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "weights.bin").write_bytes(random.Random(user).randbytes(300_000))
    browser = hub.browser(users[0])
    browser.start_notebook()
    browser.stop_notebook()


def test_a_hub_is_backed_up_while_users_log_in_and_restored_on_an_empty_machine(tmp_path: Path, place: Path) -> None:
    old, new = LocalHub(tmp_path / "old"), LocalHub(tmp_path / "new")
    with run_hub(old.state) as hub:
        fill(hub, *USERS)
        with ThreadPoolExecutor() as threads:
            begun = backup(old, "save", str(place))
            logins = [threads.submit(hub.browser, f"user-{number}") for number in range(5)]
            _, errors = begun.communicate(timeout=SECONDS)
            assert begun.returncode == 0, errors
            for login in logins:
                login.result()
        refused = fail(old, "restore", "--replace", "yes", str(place))
        assert "A hub is running with the state folder" in refused
        homes, password = tree(old.homes), hub.password
    assert fail(new, "restore", str(place)).startswith("There is no file")
    new.knows_passphrase_of(old)
    assert "is restored: " in run(new, "restore", str(place))
    assert tree(new.homes) == homes
    assert new.secrets() == old.secrets()
    with run_hub(new.state) as hub:
        assert hub.password == password
        for user in USERS:
            hub.browser(user)
        assert hub.browser("ada").start_notebook()


def test_a_second_backup_at_the_same_time_is_refused(tmp_path: Path, place: Path) -> None:
    hub = LocalHub(tmp_path)
    hub.fill()
    processes = [backup(hub, "save", str(place)) for _ in range(2)]
    ended = [(process.communicate(timeout=SECONDS)[1], process.returncode) for process in processes]
    assert sorted(code for _, code in ended) == [0, 1]
    assert "Another backup or restore of this hub is running." in "".join(errors for errors, code in ended if code)


def killed(command: Callable[[], subprocess.Popen[str]], seconds: float) -> bool:
    """Kill a command after so many seconds, and return whether it still ran."""
    process = command()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def whole(hub: LocalHub) -> dict[str, str]:
    """Return what a backup contains of a hub's state, as the next start of the hub finds it."""
    finish_at_start(hub.state)
    found = {name: tree(hub.state / name) for name in ("homes", "notices", "snapshots")}
    parts = {f"{name}/{path}": text for name, texts in found.items() for path, text in texts.items()}
    files = {path.name: path.read_bytes().hex() for path in hub.state.iterdir() if path.is_file()}
    own = {name: text for name, text in files.items() if not name.endswith(RUNNING) and name != "backup.json"}
    return {path: text for path, text in parts.items() if not {STAGED, ".service"} & set(Path(path).parts)} | own


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalHub, LocalHub]:
    """The states of two stopped hubs, of which the second has the backups of the first."""
    one, two = (LocalHub(tmp_path_factory.mktemp(name)) for name in ("one", "two"))
    for hub, users in ((one, USERS), (two, ("zoe",))):
        with run_hub(hub.state) as running:
            fill(running, *users)
    return one, two


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_killed_backups_leave_the_hub_and_earlier_backups_whole(
    tmp_path: Path, place: Path, hubs: tuple[LocalHub, LocalHub]
) -> None:
    hub, chance = LocalHub(tmp_path / "hub"), random.Random(25)
    shutil.copytree(hubs[0].state, hub.state, symlinks=True)
    begun = time.monotonic()
    run(hub, "save", str(place))
    seconds = time.monotonic() - begun
    expected, kills = {}, 0
    while kills < KILLS:
        hub.write("ada", "work.bin", chance.randbytes(200_000).hex())
        before = whole(hub)
        kills += killed(lambda: backup(hub, "save", str(place)), chance.uniform(0, seconds))
        assert whole(hub) == before
        complete, _ = list_backups(hub.site, hub.place(place))
        for manifest in complete:
            expected.setdefault(manifest.id, tree(hub.homes))
    run(hub, "save", str(place))
    del expected[min(expected)]
    for backup_id, homes in list(expected.items())[:5]:
        new = LocalHub(tmp_path / backup_id)
        new.knows_passphrase_of(hub)
        run(new, "restore", "--backup", backup_id, str(place))
        assert tree(new.homes) == homes


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_killed_restores_leave_the_old_or_the_new_hub(
    tmp_path: Path, place: Path, hubs: tuple[LocalHub, LocalHub]
) -> None:
    one, two = hubs
    chance = random.Random(26)
    run(one, "save", str(place))
    backup_id = list_backups(one.site, one.place(place))[0][0].id
    two.knows_passphrase_of(one)
    words = ("restore", "--replace", "yes", "--other-hub", "yes", "--backup", backup_id, str(place))
    (goal := LocalHub(tmp_path / "goal")).knows_passphrase_of(one)
    begun = time.monotonic()
    run(goal, "restore", str(place))
    seconds = time.monotonic() - begun + 4.0
    new = whole(goal)
    started: set[str] = set()
    for number in range(KILLS):
        hub = LocalHub(tmp_path / str(number))
        shutil.copytree(two.state, hub.state, symlinks=True)
        killed(lambda hub=hub: backup(hub, *words), chance.uniform(0, seconds))  # type: ignore[misc]
        found = whole(hub)
        old = {**whole(two), **({"hub_id": found["hub_id"]} if "hub_id" in found else {})}
        assert found in (old, new)
        outcome = "new" if found == new else "old"
        if outcome not in started:
            started.add(outcome)
            with run_hub(hub.state) as running:
                running.browser("zoe" if outcome == "old" else "ada")
        else:
            # What was killed can be repeated.
            run(hub, *words)
            assert whole(hub) == new
        shutil.rmtree(hub.state)
    assert PASSWORD_FILE in new
