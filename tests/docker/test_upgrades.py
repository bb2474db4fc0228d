"""Tests of `make upgrade` on hubs in containers, with SQLite and with PostgreSQL.

The newer versions are the hub's own image with another version, and with another schema of the database.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from images.build import run_build
from images.names import HUB, NOTEBOOK, version
from spawner_config.settings import ROOT
from tests.clients.browser import Browser
from tests.docker.stack import docker, running
from tests.docker.test_database import IMAGE, RECIPE, may_log_in, postgres_settings, rows
from tests.old_state import NEW_REVISION, OLD_REVISION, PASSWORD, USERS, old_sql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.docker.stack import Stack

pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]

BETTER, WORSE, DEAD = "97.1.0", "97.2.0", "97.3.0"
"""Versions: one that works, one whose login page fails after an upgrade of the schema, and one that does not start."""
SCHEMA = {BETTER: "aaaaaaaaaaaa", WORSE: "bbbbbbbbbbbb", DEAD: "cccccccccccc"}
MIGRATION = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = {revision!r}, {before!r}
def upgrade():
    op.add_column("users", sa.Column("added_by_{revision}", sa.Integer(), nullable=True))
def downgrade():
    op.drop_column("users", "added_by_{revision}")
"""
RECIPE_OF_A_VERSION = """
FROM {hub}
USER root
RUN sed -i 's/^__version__ = .*/__version__ = "{version}"/' \\
        $(find /opt/farandole/venv -path '*/farandole/__init__.py') && \\
    find /opt/farandole/venv -path '*/farandole/__pycache__/__init__.*' -delete
{copies}
{broken}
USER user
LABEL org.opencontainers.image.version={version}
"""
BROKEN = {
    BETTER: "",
    WORSE: "RUN for page in $(find /opt/farandole/venv -name '*login.html'); do echo '{% broken' >$page; done",
    DEAD: "RUN sed -i '/super().init_db()/a\\        raise SystemExit(1)' "
    "/opt/farandole/spawner_config/origins/application.py",
}
COPY_STATE = """
import sqlite3, sys
connection = sqlite3.connect("/srv/farandole/jupyterhub.sqlite")
connection.executescript(sys.stdin.read())
"""
REVISION = """
import sqlite3
connection = sqlite3.connect("/srv/farandole/jupyterhub.sqlite")
print(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
"""
DOWNGRADE = """
import os, subprocess, sys
from jupyterhub import dbutil
dbutil.write_alembic_ini("/tmp/alembic.ini", os.environ["FARANDOLE_DATABASE"])
alembic = [sys.executable, "-m", "alembic", "-c", "/tmp/alembic.ini"]
sys.exit(subprocess.run([*alembic, "downgrade", sys.argv[1]]).returncode)
"""
ENDS_SECONDS = 300


@pytest.fixture(scope="module", autouse=True)
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build the newer versions. Each of them knows the schemas of those before."""
    tags: list[str] = []
    known: list[tuple[str, str]] = []
    before = NEW_REVISION
    for newer, revision in SCHEMA.items():
        folder = tmp_path_factory.mktemp("version")
        known.append((revision, before))
        before = revision
        for each, down in known:
            (folder / f"{each}.py").write_text(MIGRATION.format(revision=each, before=down))
        to = "/opt/farandole/venv/lib/python3.11/site-packages/jupyterhub/alembic/versions/"
        text = RECIPE_OF_A_VERSION.format(
            hub=HUB.tag(version()), version=newer, copies=f"COPY *.py {to}", broken=BROKEN[newer]
        )
        (folder / "Dockerfile").write_text(text)
        run_build(["--tag", HUB.tag(newer), str(folder)])
        # The tests start no servers, so the image of notebooks only needs the version.
        (folder / "Dockerfile").write_text(
            f"FROM {NOTEBOOK.tag(version())}\nLABEL org.opencontainers.image.version={newer}\n"
        )
        run_build(["--tag", NOTEBOOK.tag(newer), str(folder)])
        tags += [HUB.tag(newer), NOTEBOOK.tag(newer)]
    yield
    docker("rmi", *tags)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running(tmp_path, subnets="10.214.64.0/20") as stack:
        yield stack


@pytest.fixture(scope="module")
def postgres_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    run_build(["--tag", IMAGE, str(RECIPE)])
    try:
        folder = tmp_path_factory.mktemp("postgres")
        (folder / "docker-compose.override.yml").write_text(f"services: {{postgres: {{image: {IMAGE}}}}}\n")
        with running(folder, subnets="10.214.80.0/20", **postgres_settings(secrets.token_hex(18))) as stack:
            yield stack
    finally:
        docker("rmi", IMAGE)


def begin(stack: Stack, to: str) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FARANDOLE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "hub.upgrade", to, str(stack.folder)],
        cwd=ROOT,
        env={**environment, "TO": "none"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def upgrade(stack: Stack, to: str) -> tuple[int, str]:
    """Run `make upgrade`, and return its exit status and output."""
    with begin(stack, to) as process:
        said, _ = process.communicate(timeout=ENDS_SECONDS)
    return process.returncode, said


def hub_version(stack: Stack) -> str:
    labels = stack.inspect(f"{stack.name}-hub")["Config"]["Labels"]
    return str(labels["org.opencontainers.image.version"])


def revision(stack: Stack) -> str:
    return stack.compose("exec", "-T", "hub", "python", "-c", REVISION).stdout.strip()


def files(stack: Stack) -> set[str]:
    return {path.name for path in stack.folder.iterdir()}


def test_sqlite(stack: Stack) -> None:
    stack.sign_up("ada")
    before = (stack.folder / ".env").read_text()

    status, said = upgrade(stack, BETTER)
    assert status == 0, said
    assert (hub_version(stack), revision(stack)) == (BETTER, SCHEMA[BETTER]), said
    assert f"FARANDOLE_VERSION={BETTER}" in (stack.folder / ".env").read_text()
    assert may_log_in(stack, "ada")
    stack.sign_up("grace")
    assert (stack.folder / f"upgraded-from-{version()}" / ".env").read_text() == before

    for worse, reason in [(WORSE, "login page does not open"), (DEAD, "ends again and again")]:
        status, said = upgrade(stack, worse)
        assert status == 1, said
        assert reason in said
        assert f"The hub runs with version {BETTER} again" in said
        assert (hub_version(stack), revision(stack)) == (BETTER, SCHEMA[BETTER]), said
        assert f"FARANDOLE_VERSION={BETTER}" in (stack.folder / ".env").read_text()
        assert may_log_in(stack, "ada")
        assert may_log_in(stack, "grace")
        assert ".upgrade" not in files(stack)

    # Somebody sets the old version by hand.
    (stack.folder / ".env").write_text(before)
    stack.compose("up", "-d", "--no-deps", "hub")
    wait_until(lambda: "restore the backup" in stack.compose("logs", "hub").stdout, 60)
    assert f"Version {BETTER} of Farandole has used the hub's state" in stack.compose("logs", "hub").stdout


def test_the_state_of_the_oldest_release(stack: Stack) -> None:
    stack.compose("down")
    docker("volume", "rm", f"{stack.name}-state")
    done = subprocess.run(
        ["docker", "compose", "run", "--rm", "--no-deps", "-T", "hub", "python", "-c", COPY_STATE],
        cwd=stack.folder,
        input=old_sql(),
        text=True,
        capture_output=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    stack.up()
    assert revision(stack) == NEW_REVISION
    for user in USERS:
        assert Browser(stack.url, user, PASSWORD)


def test_postgresql(postgres_stack: Stack) -> None:
    stack = postgres_stack
    stack.sign_up("ada")
    schema = "SELECT version_num FROM alembic_version"
    stack.compose("stop", "hub")
    stack.compose("run", "--rm", "-T", "hub", "python", "-c", DOWNGRADE, OLD_REVISION)
    assert rows(stack, schema) == {OLD_REVISION}
    stack.up()
    assert rows(stack, schema) == {NEW_REVISION}

    status, said = upgrade(stack, WORSE)
    assert status == 1, said
    assert (hub_version(stack), rows(stack, schema)) == (version(), {NEW_REVISION}), said
    assert may_log_in(stack, "ada")
    stack.sign_up("grace")

    status, said = upgrade(stack, BETTER)
    assert status == 0, said
    assert (hub_version(stack), rows(stack, schema)) == (BETTER, {SCHEMA[BETTER]}), said
    assert may_log_in(stack, "grace")
    [dump] = (stack.folder / f"upgraded-from-{version()}").glob("*.sql")
    assert dump.stem == NEW_REVISION
    assert "grace" in dump.read_text()


def test_a_killed_upgrade_continues_or_goes_back(stack: Stack) -> None:
    stack.sign_up("ada")
    moments = random.Random(25)
    for number in range(4):
        with begin(stack, BETTER if number % 2 else WORSE) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0.5, 12))
            process.send_signal(signal.SIGKILL)
        if number % 2:
            # What the machine does when it starts again after a loss of power, or the operator.
            stack.compose("up", "-d")
            wait_until(lambda: may_log_in(stack, "ada"), ENDS_SECONDS)
        status, said = upgrade(stack, version())
        began = "interrupted" in said
        assert (status == 0) == began, said
        assert hub_version(stack) == version(), said
        assert may_log_in(stack, "ada")
