"""Tests for the commands of an upgrade, with a program in place of `docker` that records its arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hub.upgrade import compose
from hub.upgrade.compose import ComposeHub, UpgradeError

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
    *RestartCount*) echo "$(cat "$COUNT")"; echo 2 >"$COUNT" ;;
    *Health.Status*) echo "$HEALTH" ;;
    *pg_dump*) echo "CREATE TABLE users;"; echo "$PROBLEM" >&2; exit "$STATUS" ;;
    *psql*-tAc*) echo 4621fec11365 ;;
    *psql*) cat >>"$CALLS" ;;
    *logs*) echo "the last line of the log" ;;
    *) echo "$PROBLEM" >&2; exit "$STATUS" ;;
esac
"""


class Docker:
    """A program `docker` in a folder of its own. ``variables`` determine its answers."""

    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        program = folder / "bin" / "docker"
        program.write_text(DOCKER)
        program.chmod(0o755)
        (folder / "count").write_text("0")
        self._calls = folder / "calls"
        self.variables = {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CALLS": str(self._calls),
            "COUNT": str(folder / "count"),
            "HEALTH": "healthy",
            "STATUS": "0",
            "PROBLEM": "",
        }

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    found = Docker(tmp_path)
    monkeypatch.setattr(compose, "POLL_SECONDS", 0)
    return found


@pytest.fixture
def hub(tmp_path: Path, docker: Docker) -> ComposeHub:
    (folder := tmp_path / "hub").mkdir()
    (folder / ".env").write_text("FARANDOLE_NAME=lab\n")
    return ComposeHub(folder, docker.variables)


def test_a_hub_that_was_never_started_is_named(hub: ComposeHub, docker: Docker) -> None:
    docker.variables["STATUS"] = "1"
    with pytest.raises(UpgradeError, match="no container lab-hub .*docker compose up -d --wait"):
        hub.label("x")


def test_a_missing_docker_is_named(hub: ComposeHub, docker: Docker) -> None:
    docker.variables["PATH"] = str(hub.folder)
    with pytest.raises(UpgradeError, match="no docker command here"):
        hub.stop()


def test_a_hub_starts(hub: ComposeHub, docker: Docker, tmp_path: Path) -> None:
    hub.start()
    assert docker.calls[0] == f"compose --project-directory={hub.folder} up --detach"
    (hub.folder / "docker-compose.override.yml").touch()
    (old := tmp_path / "old.yml").touch()
    hub.start(old)
    files = f"--file={old} --file={hub.folder}/docker-compose.override.yml"
    assert f"compose --project-directory={hub.folder} {files} up --detach" in docker.calls


def test_a_hub_that_ends_again_and_again_is_given_up(hub: ComposeHub, docker: Docker) -> None:
    docker.variables["HEALTH"] = "starting"
    with pytest.raises(UpgradeError, match="ends again and again(.|\n)*the last line of the log"):
        hub.start()


def test_a_hub_that_does_not_answer_is_given_up(
    hub: ComposeHub, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "START_SECONDS", 0)
    monkeypatch.setattr(compose, "CRASHES", 9)
    docker.variables["HEALTH"] = "unhealthy"
    with pytest.raises(UpgradeError, match="it is unhealthy(.|\n)*the last line of the log"):
        hub.start()


def test_a_failed_command_is_shown(hub: ComposeHub, docker: Docker) -> None:
    docker.variables |= {"STATUS": "1", "PROBLEM": "no such service"}
    with pytest.raises(UpgradeError, match="`docker compose stop hub` failed:\nno such service"):
        hub.stop()


def test_a_login_page_that_does_not_open_is_shown(hub: ComposeHub, docker: Docker) -> None:
    hub.check_login()
    docker.variables |= {"STATUS": "1", "PROBLEM": "status 500"}
    with pytest.raises(UpgradeError, match=r"does not open \(status 500\)(.|\n)*the last line of the log"):
        hub.check_login()


def test_the_database_is_dumped_and_loaded(hub: ComposeHub, docker: Docker, tmp_path: Path) -> None:
    assert hub.schema() == "4621fec11365"
    dump = tmp_path / "dump.sql"
    hub.dump(dump)
    assert dump.read_text() == "CREATE TABLE users;\n"
    assert dump.stat().st_mode & 0o077 == 0
    hub.load(dump)
    assert docker.calls[-2:] == ["DROP SCHEMA public CASCADE; CREATE SCHEMA public;", "CREATE TABLE users;"]
    assert "--single-transaction --set=ON_ERROR_STOP=1" in docker.calls[-3]


def test_a_failed_dump_is_none(hub: ComposeHub, docker: Docker, tmp_path: Path) -> None:
    docker.variables |= {"STATUS": "1", "PROBLEM": "no room"}
    with pytest.raises(UpgradeError, match="no room"):
        hub.dump(tmp_path / "dump.sql")
    assert not (tmp_path / "dump.sql").exists()
