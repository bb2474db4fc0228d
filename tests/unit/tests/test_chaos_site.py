"""Tests that a soak test reverts its changes to the machine even after errors, and works if programs are missing."""

import errno
import os
import shutil
import socket
import subprocess

import pytest

from tests.chaos.network import MARK, Cut
from tests.chaos.volume import Volume

RECORD = """#!/bin/sh
echo "$(basename "$0") $*" >>"$0.log"
[ "$2 $3" = "-S INPUT" ] && cat "$0.rules" 2>/dev/null
[ "$(grep -c -- -I "$0.log")" != "$(cat "$0.fails" 2>/dev/null)" ] || [ "$2" != -I ]
"""


class Programs:
    """Programs that record their arguments."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, *names):
        for name in names:
            path = self.folder / name
            path.write_text(RECORD)
            path.chmod(0o755)

    def calls(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Replacements for the machine's programs. Only a few programs that shell scripts need are real."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "basename", "cat", "grep"):
        (folder / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(folder))
    return Programs(folder)


@pytest.fixture
def connection():
    """A connection of this process to itself."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            yield near, far


def cut_of(connection):
    """Return a cut of only this connection, because the process may have other connections to itself."""
    near, far = (end.getsockname()[1] for end in connection)
    cut = Cut(os.getpid(), os.getpid())
    cut._pairs = [pair for pair in cut._pairs if set(pair) == {near, far}]
    return cut


def test_a_cut_is_marked_and_restored(programs, connection):
    programs.add("iptables")
    cut = cut_of(connection)
    cut.make()
    made = programs.calls("iptables")
    assert len(made) == 2
    assert all(f"-m comment --comment {MARK}" in call for call in made)
    cut.restore()
    assert [call.replace("-D", "-I") for call in programs.calls("iptables")[2:]] == made


def test_a_partly_failed_cut_can_be_restored(programs, connection):
    programs.add("iptables")
    (programs.folder / "iptables.fails").write_text("2")
    cut = cut_of(connection)
    with pytest.raises(subprocess.CalledProcessError):
        cut.make()
    cut.restore()
    assert sum("-D INPUT" in call for call in programs.calls("iptables")) == 2


def test_a_cut_that_hits_no_connection_is_refused(programs, connection):
    cut = cut_of(connection)
    cut._pairs = []
    with pytest.raises(RuntimeError, match="no connection between the two"):
        cut.make()


def test_only_cuts_of_killed_soaks_are_restored(programs):
    programs.add("iptables")
    ours = f"INPUT -i lo -p tcp -m tcp --sport 1 --dport 2 -m comment --comment {MARK} -j DROP"
    rules = ["-P INPUT ACCEPT", f"-A {ours}", '-A INPUT -m comment --comment "of somebody else" -j DROP']
    (programs.folder / "iptables.rules").write_text("\n".join(rules) + "\n")
    Cut.restore_all()
    assert programs.calls("iptables") == ["iptables -w -S INPUT", f"iptables -w -D {ours}"]


def test_a_volume_is_a_folder_if_nothing_can_be_mounted(programs, tmp_path):
    with Volume.open(tmp_path / "volume") as volume:
        assert not volume.small
        assert volume.folder.is_dir()


def test_a_volume_in_use_is_unmounted_anyway(programs, tmp_path):
    programs.add("mount", "umount")
    with Volume.open(tmp_path / "volume") as volume:
        assert volume.small
    assert programs.calls("umount") == [f"umount -l {tmp_path / 'volume'}"]


def test_a_volume_is_filled_while_others_write_to_it(monkeypatch, tmp_path):
    (tmp_path / "volume").mkdir()
    volume, said = Volume(tmp_path / "volume", small=True), iter([OSError(errno.ENOSPC, "full"), None, None])

    def allocate(file, begin, size):
        if (error := next(said)) is not None:
            raise error
        os.truncate(file, begin + 4096)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    volume.fill(0.5)
    volume.fill(0.5)
    assert (tmp_path / "volume" / "filler").stat().st_size == 8192
    volume.free()
    assert list((tmp_path / "volume").iterdir()) == []
