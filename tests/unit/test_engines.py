from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docker.engines.daemon import Daemon
from tests.docker.engines.debian import SetUpError

if TYPE_CHECKING:
    from pathlib import Path


def daemon(folder: Path, code: str) -> Daemon:
    return Daemon(name="serve", folder=folder, command=(sys.executable, "-c", code, str(folder)))


def test_a_daemon_is_known_again_and_ended_by_its_id(tmp_path: Path) -> None:
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[1], 'ready').touch(); time.sleep(600)"
    daemon(tmp_path, code).start((tmp_path / "ready").exists)
    later = daemon(tmp_path, code)
    assert later.pid()
    assert later.stop()
    assert later.pid() is None
    assert not later.stop()


def test_a_daemon_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    failing = daemon(tmp_path, "raise SystemExit('no such bridge')")
    with pytest.raises(SetUpError, match="ended with status 1.*\nno such bridge"):
        failing.start(lambda: False)


def test_what_has_its_id_by_chance_is_left_alone(tmp_path: Path) -> None:
    stranger = daemon(tmp_path, "")
    (tmp_path / "serve.started").write_text(str(os.getppid()))
    assert not stranger.stop()
