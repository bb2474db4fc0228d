"""Tests for the reserve of the hub's database, on a disk that lets no file grow."""

from __future__ import annotations

import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from spawner_config.quotas.reserve import JOURNAL_BYTES, RESERVE_BYTES, TABLE, reserve_database, reserve_pages

if TYPE_CHECKING:
    from pathlib import Path

WRITE = """
import sys
from sqlalchemy import create_engine, event, text, Engine
from spawner_config.quotas.reserve import keep_journal
event.listen(Engine, "connect", keep_journal)
engine = create_engine(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO logins VALUES (zeroblob(100000))"))
"""


def free_bytes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        free, page = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
    return int(free * page)


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [name for (name,) in database.execute("SELECT name FROM sqlite_master")]


def on_full_disk(path: Path, rows: int) -> subprocess.CompletedProcess[str]:
    """Write rows in a process that cannot make a file larger than the database is."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    size = path.stat().st_size
    command = [sys.executable, "-c", WRITE, f"sqlite:///{path}", str(rows)]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "hub.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE logins (content BLOB)")
    return path


def test_a_new_database_has_a_reserve_on_the_disk_and_no_table(tmp_path: Path) -> None:
    path = tmp_path / "hub.sqlite"
    reserve_database(f"sqlite:///{path}")
    assert free_bytes(path) >= RESERVE_BYTES
    assert path.stat().st_blocks * 512 >= RESERVE_BYTES
    journal = path.with_name("hub.sqlite-journal")
    assert journal.stat().st_blocks * 512 >= JOURNAL_BYTES
    assert tables(path) == []


def test_a_reserve_that_is_there_is_kept(database: Path) -> None:
    reserve_database(f"sqlite:///{database}")
    size = database.stat().st_size
    reserve_database(f"sqlite:///{database}")
    assert database.stat().st_size == size
    assert tables(database) == ["logins"]


def test_a_killed_hub_leaves_a_table_that_the_next_one_removes(database: Path) -> None:
    with closing(sqlite3.connect(database)) as made:
        made.execute(f"CREATE TABLE {TABLE} (content BLOB)")
        made.execute(f"INSERT INTO {TABLE} VALUES (zeroblob(1000000))")
        made.commit()
    reserve_pages(database)
    assert tables(database) == ["logins"]
    assert free_bytes(database) >= RESERVE_BYTES


def test_the_hub_writes_to_its_database_while_the_disk_is_full(database: Path) -> None:
    failed = on_full_disk(database, 1)
    assert "OperationalError" in failed.stderr
    reserve_database(f"sqlite:///{database}")
    done = on_full_disk(database, 30)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(database)) as found:
        assert found.execute("SELECT count(*), sum(length(content)) FROM logins").fetchone() == (30, 3_000_000)
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    # When the reserve is used up, nothing is damaged.
    failed = on_full_disk(database, 30)
    assert "OperationalError" in failed.stderr
    with closing(sqlite3.connect(database)) as found:
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert found.execute("SELECT count(*) FROM logins").fetchone()[0] > 30


def test_the_journal_stays(database: Path) -> None:
    url = f"sqlite:///{database}"
    reserve_database(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO logins VALUES ('x')"))
    engine.dispose()
    assert database.with_name("hub.sqlite-journal").stat().st_size >= JOURNAL_BYTES


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "postgresql+psycopg://farandole:x@postgres/hub"])
def test_other_databases_have_no_reserve(url: str) -> None:
    reserve_database(url)


def test_a_database_without_room_is_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reserve_database(f"sqlite:///{tmp_path}/missing/hub.sqlite")
    assert "The hub's database has no reserve of disk space" in caplog.text
