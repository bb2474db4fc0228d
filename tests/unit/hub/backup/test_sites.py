"""Tests for places, for the kinds of hub, and for the operator's files. Real engines are in tests/docker."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hub.backup.__main__ import main
from hub.backup.operations import place_of
from hub.backup.place import BackupError, BackupPlace, read_address
from hub.backup.sites.compose import ComposeSite
from hub.backup.sites.files import write_files
from hub.backup.sites.find import find_site
from hub.backup.sites.kubernetes import KubernetesSite
from hub.doctor.backups import judge_backup
from hub.doctor.finding import Level
from hub.services.operators.__main__ import template
from images.doctor import write_backup
from spawner_config.operators.backup_record import BackupRecord
from tests.clients.backups import LocalHub

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = BackupRecord(id="1", time="2026-11-30T18:00:00+00:00", place="/mnt/backup", bytes=3 << 30)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "'' is no place for backups. Name a folder"),
        ("ftp://x/y", "'ftp://x/y' is no place for backups"),
        ("rest:https://user:pw@host/x", "has a login. Remove it, and set FARANDOLE_BACKUP_USER"),
        ("s3:user:pw@host/x", "has a login"),
    ],
)
def test_a_wrong_place_is_named(address: str, message: str) -> None:
    with pytest.raises(BackupError, match=message) as raised:
        BackupPlace(address=address, password_file=Path("x"))
    assert "pw" not in str(raised.value) or address.startswith("ftp")


def test_a_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_address("backups") == str(tmp_path / "backups")
    assert read_address("rest:https://host/x/") == "rest:https://host/x"
    assert read_address("claim:backups") == "claim:backups"


def test_the_passphrase_may_be_in_another_file(tmp_path: Path) -> None:
    hub = LocalHub(tmp_path)
    site = hub.site
    assert place_of(site, "/x").password_file == hub.state / "backup_password"
    elsewhere = type(site)({"FARANDOLE_STATE": str(hub.state), "FARANDOLE_BACKUP_PASSWORD_FILE": "/safe/pass"})
    place = place_of(elsewhere, "/x")
    assert place.password_file == Path("/safe/pass")
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(BackupError, match="is empty. It has to contain the passphrase"):
        BackupPlace(address="/x", password_file=empty).passphrase()


def test_the_kind_of_the_hub_is_found(tmp_path: Path) -> None:
    environ = {"FARANDOLE_STATE": str(tmp_path / "state")}
    with pytest.raises(BackupError, match=r"There is no hub here\. Choose one with SITE=, .* local, compose, kube"):
        find_site("", tmp_path, environ)
    (tmp_path / ".env").write_text("FARANDOLE_NAME=lab\nFARANDOLE_DEPLOYMENT=swarm\n")
    found = find_site("", tmp_path, environ)
    assert isinstance(found, ComposeSite)
    assert (found.deployment, found.database) == ("swarm", "sqlite")
    (tmp_path / "state").mkdir()
    with pytest.raises(BackupError, match="There is local and compose here"):
        find_site("", tmp_path, environ)
    assert find_site("local", tmp_path, environ).deployment == "local"
    with pytest.raises(BackupError, match=r"There is no hub/kubernetes/site here\."):
        find_site("kubernetes", tmp_path, environ)


@pytest.mark.parametrize(
    ("settings", "database"),
    [
        ({}, "sqlite"),
        ({"FARANDOLE_DATABASE": "postgresql+psycopg://x@db/y"}, "elsewhere"),
        ({"FARANDOLE_DATABASE": "postgresql+psycopg://x@postgres/y", "COMPOSE_PROFILES": "tls,postgres"}, "postgresql"),
    ],
)
def test_the_kind_of_the_database_is_found(tmp_path: Path, settings: dict[str, str], database: str) -> None:
    (tmp_path / ".env").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    assert ComposeSite(tmp_path, {}).database == database


def test_a_machine_without_settings_takes_those_of_the_backup(tmp_path: Path) -> None:
    site = ComposeSite(tmp_path, {})
    assert (site.deployment, site.state) == ("", "/tmp/state")
    assert site.write_settings({".env": "FARANDOLE_NAME=lab\n", "other": "x"})
    assert site.deployment == "docker"
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "other").exists()
    assert not site.write_settings({".env": "FARANDOLE_NAME=lab\n"})


def test_a_file_of_the_operator_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".env").write_text("mine")
    assert write_files(tmp_path, {".env": "theirs", "new": "new"}) == {"new"}
    assert (tmp_path / ".env").read_text() == "mine"
    assert (tmp_path / ".env.restored").read_text() == "theirs"
    assert ".env exists and stays as it is. That of the backup is now" in capsys.readouterr().err


def test_a_site_on_kubernetes_has_its_namespace_and_name(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("namespace: lab\nresources: []\n")
    (tmp_path / "settings.env").write_text("FARANDOLE_NAME=lab\nFARANDOLE_DATABASE=postgresql://x\n")
    site = KubernetesSite(tmp_path, {"FARANDOLE_BACKUP_USER": "me"})
    assert (site.setting("FARANDOLE_NAME"), site.setting("FARANDOLE_BACKUP_USER")) == ("lab", "me")
    assert site.database == "elsewhere"


def test_the_command_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["save", ""], {}) == 1
    assert capsys.readouterr().err == "Name the place of the backups: make backup TO=/mnt/backup\n"
    with pytest.raises(SystemExit):
        main(["save", "--keep", "-1", "/x"], {})
    with pytest.raises(SystemExit):
        main(["save", "--keep", "many", "/x"], {})
    assert "KEEP is 'many'. It must be a number of backups" in capsys.readouterr().err


def test_the_program_of_a_bundle_needs_no_package(tmp_path: Path) -> None:
    write_backup(tmp_path / "backup")
    (tmp_path / ".env").write_text("FARANDOLE_NAME=lab\n")
    # -S hides site-packages, because the program must not depend on packages that are installed for the tests.
    empty = {"PATH": str(tmp_path)}
    command = [sys.executable, "-I", "-S", str(tmp_path / "backup"), "restore", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=empty)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no command docker here. Install it first.")


def test_the_doctor_says_when_the_last_backup_was() -> None:
    at = datetime(2026, 11, 30, 18, tzinfo=UTC)
    good = judge_backup(RECORD, at + timedelta(days=6))
    assert (good.level, good.found) == (Level.OK, "the last one is of 2026-11-30 18:00 UTC, 3.00 GiB, at /mnt/backup")
    old = judge_backup(RECORD, at + timedelta(days=8))
    assert (old.level, old.found[:31]) == (Level.WARNING, "The last backup is 8 days old: ")
    none = judge_backup(None, at)
    assert (none.level, none.found) == (Level.WARNING, "There is no backup of this hub.")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": "1", "time": "x", "place": "/x", "bytes": 1}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    assert BackupRecord.read(tmp_path) is None
    (tmp_path / "backup.json").write_text(text)
    assert BackupRecord.read(tmp_path) is None
    RECORD.write(tmp_path)
    assert BackupRecord.read(tmp_path) == RECORD


def test_the_operators_page_says_when_the_last_backup_was() -> None:
    page: Callable[..., str] = template().render
    shared = {"users": [], "gpus": {}, "limits": {}, "mirror": [], "base": "/", "hub": "/hub/", "nonce": "", "most": 1}
    assert "Last backup: 2026-11-30 18:00 UTC, 3.00 GiB, at /mnt/backup." in page(**shared, backup=RECORD)
    assert "There is no backup of this hub" in page(**shared, backup=None)
