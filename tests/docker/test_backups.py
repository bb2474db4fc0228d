"""A hub in containers is backed up while users work, and restored on an empty second engine."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from images.build import run_build
from images.names import HUB, NOTEBOOK, version
from tests.docker import swarm_stack
from tests.docker.bare import SUBNETS, bare_engine
from tests.docker.engines.swarm import swarm
from tests.docker.operator import USER_ID, backed_up, backup_folder, refused
from tests.docker.stack import Stack, docker, running, while_up
from tests.docker.test_database import IMAGE, RECIPE, postgres_settings, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.docker.engines.second import SecondEngine

CELL_SECONDS = 120.0
USER = "ada"
WORK = """
import os
open("weights.bin", "wb").write(os.urandom(3_000_000))
open("/groups/vision/shared.txt", "w").write("of the group")
%snapshot take "before the fire"
"""
RESTORE = """
import os
os.remove("weights.bin")
%snapshot restore weights.bin
print("READ", os.path.getsize("weights.bin"))
"""
SUMS = "cd /home && find . -type f -not -path '*/.*' -exec sha256sum {} + | sort -k 2"


@pytest.fixture(scope="module")
def machine() -> Iterator[SecondEngine]:
    with bare_engine() as engine:
        engine.copy(HUB.tag(version()), NOTEBOOK.tag(version()))
        yield engine


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backup_folder(tmp_path_factory.mktemp("place") / "backups")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[Stack]:
    """Run a hub on which ada has worked, and back it up twice meanwhile."""
    settings = {"FARANDOLE_GROUP_FOLDERS": "vision: ada"}
    with running(tmp_path_factory.mktemp("old"), subnets="10.214.48.0/20", **settings) as stack:
        with stack.kernel(USER, "lean") as kernel:
            kernel.execute(WORK, deadline=CELL_SECONDS)
            backed_up(stack, "save", str(place))
        stack.browser(USER).stop_notebook()
        said = backed_up(stack, "save", str(place))
        assert "is complete: " in said
        yield stack


def home_of(stack: Stack, user: str) -> str:
    """Return the checksums of the files in a user's home."""
    volume = f"{stack.name}-home-{user}:/home:ro"
    return stack.docker("run", "--rm", "--volume", volume, HUB.tag(version()), "sh", "-c", SUMS)


def restored(folder: Path, old: Stack, engine: SecondEngine | None, **settings: str) -> Stack:
    """Return a hub on an engine that has the passphrase of another one, but has never been started."""
    stack = Stack(folder, subnets=SUBNETS, engine=engine, FARANDOLE_GROUP_FOLDERS="vision: ada", **settings)
    shutil.copy(old.folder / "backup_password", folder)
    stack.passwords.update(old.passwords)
    return stack


def test_a_hub_is_restored_on_an_empty_engine(tmp_path: Path, old: Stack, machine: SecondEngine, place: Path) -> None:
    new = restored(tmp_path, old, machine)
    try:
        assert "is restored: " in backed_up(new, "restore", str(place))
        assert home_of(new, USER) == home_of(old, USER)
        labels = new.docker("volume", "inspect", "--format", "{{json .Labels}}", f"{new.name}-home-{USER}")
        assert f'"farandole.owner":"{USER}"' in labels
        assert (tmp_path / ".env.restored").stat().st_mode & 0o777 == 0o600
        new.up()
        with new.kernel(USER, "lean") as kernel:
            assert "READ of the group" in kernel.execute("print('READ', open('/groups/vision/shared.txt').read())")
            assert "before the fire" in kernel.execute("%snapshot list", deadline=CELL_SECONDS)
            assert "READ 3000000" in kernel.execute(RESTORE, deadline=CELL_SECONDS)
        running_hub = refused(new, "restore", "--replace", "yes", str(place))
        assert "The hub is running, and nothing was changed. Stop it: docker compose stop hub" in running_hub
        new.compose("stop", "hub")
        assert "1 servers of users are running" in refused(new, "restore", "--replace", "yes", str(place))
    except BaseException:
        print(new.logs())
        raise
    finally:
        new.down()


def test_a_hub_with_users_stays_and_is_replaced_only_on_request(old: Stack, place: Path) -> None:
    old.sign_up("late")
    old.compose("stop", "hub")
    try:
        assert "homes, and nothing was changed. To replace it" in refused(old, "restore", str(place))
        assert "The present state is backed up first." in backed_up(old, "restore", "--replace", "yes", str(place))
    finally:
        old.compose("start", "hub")
    old.wait_ready()
    old.browser(USER)
    assert "late" not in old.compose("exec", "-T", "hub", *_query("SELECT name FROM users")).stdout
    record = old.compose("exec", "-T", "hub", "cat", "backup.json").stdout
    assert str(place) in record


def test_a_folder_of_root_is_refused_with_the_remedy(tmp_path: Path, old: Stack) -> None:
    (folder := tmp_path / "root").mkdir()
    assert "User id 1000 must own a folder (chown 1000:1000)" in refused(old, "save", str(folder))
    assert "Create it, or mount its disk" in refused(old, "save", str(tmp_path / "missing"))


def test_a_small_disk_is_named_and_keeps_earlier_backups(tmp_path: Path, old: Stack) -> None:
    (folder := tmp_path / "small").mkdir()
    options = "size=2m,uid=1000,gid=1000"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "farandole-test", str(folder)], check=True)
    try:
        assert "There is no room left" in refused(old, "save", str(folder))
        listed = backed_up(old, "list", str(folder))
        assert "interrupted" in listed
        assert "parts" not in listed
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.release
def test_postgresql_is_dumped_and_restored(tmp_path: Path) -> None:
    place = backup_folder(tmp_path / "backups")
    run_build(["--tag", IMAGE, str(RECIPE)])
    with ExitStack() as cleanup:
        cleanup.callback(docker, "rmi", "--force", IMAGE)
        (folder := tmp_path / "stack").mkdir()
        override = f"services: {{postgres: {{image: {IMAGE}}}}}\n"
        (folder / "docker-compose.override.yml").write_text(override)
        stack = Stack(folder, subnets="10.214.48.0/20", **postgres_settings("0123456789abcdef" * 2))
        cleanup.enter_context(while_up(stack))
        stack.sign_up("petra")
        backed_up(stack, "save", str(place))
        stack.sign_up("late")
        stack.compose("stop", "hub")
        assert "This hub has 3 users" in refused(stack, "restore", str(place))
        backed_up(stack, "restore", "--replace", "yes", str(place))
        assert rows(stack, "SELECT name FROM users") == {"petra", "root-of-all"}
        stack.compose("start", "hub")
        stack.wait_ready()
        stack.browser("petra")


@pytest.mark.release
def test_homes_that_the_machines_of_a_swarm_share_are_restored(tmp_path: Path) -> None:
    place = backup_folder(tmp_path / "backups")
    (homes := tmp_path / "homes").mkdir()
    (folder := tmp_path / "hub").mkdir()
    with swarm() as machines:
        machines.manager.copy(HUB.tag(version()), NOTEBOOK.tag(version()))
        with swarm_stack.running(folder, machines, homes) as stack:
            with stack.kernel(USER, "lean") as kernel:
                kernel.execute("open('notes.txt', 'w').write('first')", deadline=CELL_SECONDS)
                assert f"home/{USER}: " in backed_up(stack, "save", str(place))
            stack.browser(USER).stop_notebook()
            notes = homes / f"{stack.name}-home-{USER}" / "notes.txt"
            notes.write_text("second")
            stack.compose("stop", "hub")
            backed_up(stack, "restore", "--replace", "yes", str(place))
            assert notes.read_text() == "first"
            assert notes.stat().st_uid == notes.parent.stat().st_uid == USER_ID
            stack.compose("start", "hub")
            stack.wait_ready()
            stack.browser(USER)


def _query(query: str) -> tuple[str, ...]:
    code = f"import sqlite3; print(sqlite3.connect('jupyterhub.sqlite').execute({query!r}).fetchall())"
    return ("python", "-c", code)
