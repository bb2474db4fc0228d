from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hub.process import wait_until
from tests.docker.engines.daemon import Daemon
from tests.docker.engines.debian import SetUpError
from tests.docker.engines.first import check_local, forget_killed
from tests.docker.engines.lock import locked
from tests.docker.ports import HTTP, HTTPS, quiet_port


def daemon(folder: Path, code: str) -> Daemon:
    return Daemon(name="serve", folder=folder, command=(sys.executable, "-c", code, str(folder)))


def test_a_daemon_is_recognised_and_ended_by_its_id(tmp_path: Path) -> None:
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[1], 'ready').touch(); time.sleep(600)"
    daemon(tmp_path, code).start((tmp_path / "ready").exists)
    later = daemon(tmp_path, code)
    assert later.pid()
    assert later.stop()
    assert later.pid() is None
    assert not later.stop()


def test_a_daemon_that_ignores_sigterm_is_stopped_by_its_stop_signal(tmp_path: Path) -> None:
    code = "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code += "; pathlib.Path(sys.argv[1], 'ready').touch(); time.sleep(600)"
    stubborn = replace(daemon(tmp_path, code), stop_signal=signal.SIGKILL)
    stubborn.start((tmp_path / "ready").exists)
    assert stubborn.stop()
    assert stubborn.pid() is None


def test_a_daemon_that_ends_immediately_is_reported_with_its_last_output(tmp_path: Path) -> None:
    failing = daemon(tmp_path, "raise SystemExit('no such bridge')")
    with pytest.raises(SetUpError, match="ended with status 1.*\nno such bridge"):
        failing.start(lambda: False)


def test_a_process_with_a_reused_id_is_left_alone(tmp_path: Path) -> None:
    stranger = daemon(tmp_path, "")
    (tmp_path / "serve.started").write_text(str(os.getppid()))
    assert not stranger.stop()


def test_a_daemon_without_a_recorded_id_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "serve.started").touch()
    assert daemon(tmp_path, "").pid() is None


def test_ids_of_killed_daemons_are_forgotten_even_if_reused(tmp_path: Path) -> None:
    files = [tmp_path / "dockerd.pid", tmp_path / "containerd.pid"]
    forget_killed(*files)
    for text in (str(os.getpid()), "", "9999999"):
        for file in files:
            file.write_text(text)
        forget_killed(*files)
        assert not any(file.exists() for file in files)


def test_a_live_containerd_is_kept(tmp_path: Path) -> None:
    program = tmp_path / "containerd"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as living:
        try:
            # A process gets its name shortly after Popen has returned.
            wait_until(lambda: Path(f"/proc/{living.pid}/comm").read_text() == "containerd\n", 10)
            (tmp_path / "pid").write_text(f"{living.pid}\n")
            forget_killed(tmp_path / "none", tmp_path / "pid")
            assert (tmp_path / "pid").exists()
        finally:
            living.kill()


@pytest.mark.parametrize("host", ["tcp://10.0.0.1:2375", "unix:///run/user/1000/docker.sock"])
def test_an_engine_of_another_machine_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SetUpError, match=f"DOCKER_HOST is {host}, .*Unset DOCKER_HOST"):
        check_local()


def test_the_engine_of_this_machine_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///var/run/docker.sock")
    check_local()
    monkeypatch.delenv("DOCKER_HOST")
    check_local()


def test_a_lock_is_waited_for_and_released_with_its_holder(tmp_path: Path) -> None:
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); "
    command = [sys.executable, "-c", f"{hold}time.sleep(600)", str(tmp_path / "engine.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        held = r"another test session, which holds .*engine\.lock, took more than 1 s"
        with pytest.raises(SetUpError, match=held), locked("engine", 1, tmp_path):
            raise AssertionError("acquired a lock that another process holds")
        holder.kill()
    with locked("engine", 60, tmp_path):
        pass


@pytest.mark.parametrize("among", [HTTP, HTTPS])
def test_ports_are_outside_the_ephemeral_range(among: range) -> None:
    assert quiet_port(among) in among
    assert among.stop <= 32768
