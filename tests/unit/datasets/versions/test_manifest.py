"""Tests for manifests of data sets. The reference is the program `sha256sum`."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.manifest import MANIFEST, digest_of, verify
from farandole.exceptions import DataSetError, UsageError

NAMES = [b"b.txt", b"a/b/c.bin", b"a b", b"new\nline", b"back\\slash", b"r\r", b"not-utf8-\xff", b".hidden", b"*star"]


@pytest.fixture
def source(tmp_path):
    """A folder with names that need care."""
    for number, name in enumerate(NAMES):
        path = tmp_path / "source" / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * number)
    return tmp_path / "source"


@pytest.fixture
def version(source, tmp_path):
    """A version with the files of `source`."""
    target = tmp_path / "version"
    target.mkdir()
    copy_version(source, target)
    return target


def make_writable(folder: Path) -> None:
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def test_sha256sum_verifies_a_version(version):
    command = ["sha256sum", "--strict", "--quiet", "-c", MANIFEST]
    checked = subprocess.run(command, cwd=version, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert len((version / MANIFEST).read_bytes().splitlines()) == len(NAMES)


def test_a_copy_has_the_digest_of_its_manifest_and_is_read_only(source, tmp_path):
    (tmp_path / "to").mkdir()
    copied = copy_version(source, tmp_path / "to")
    assert copied.files == len(NAMES)
    assert copied.bytes == sum(range(len(NAMES)))
    assert copied.digest == digest_of((tmp_path / "to" / MANIFEST).read_bytes()) == verify(tmp_path / "to")
    assert {path.stat().st_mode & 0o222 for path in (tmp_path / "to").rglob("*")} == {0}


def test_the_same_files_have_the_same_digest_whatever_their_order_and_times(version, tmp_path):
    (tmp_path / "again").mkdir()
    assert copy_version(version, tmp_path / "again").digest == verify(version)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda folder: (folder / "b.txt").write_text("other"), "b.txt"),
        (lambda folder: (folder / "b.txt").unlink(), "b.txt"),
        (lambda folder: (folder / "a" / "extra").write_text(""), "a/extra"),
    ],
)
def test_a_change_is_named(version, change, name):
    make_writable(version)
    change(version)
    with pytest.raises(DataSetError, match=f"differs from its manifest in 1 file, such as '{name}'"):
        verify(version)


def test_a_folder_without_manifest_is_not_a_version(source):
    with pytest.raises(DataSetError, match="is not a version of a data set"):
        verify(source)


def test_the_order_of_the_lines_is_a_part_of_the_digest(version):
    make_writable(version)
    lines = (version / MANIFEST).read_bytes().splitlines(keepends=True)
    for wrong in ([*lines[1:], lines[0]], [*lines, lines[0]]):
        (version / MANIFEST).write_bytes(b"".join(wrong))
        with pytest.raises(DataSetError, match="a manifest whose lines are not sorted or not unique"):
            verify(version)


def listen(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo, listen])
def test_links_pipes_and_sockets_are_refused(source, tmp_path, make):
    make(source / "odd")
    (tmp_path / "to").mkdir()
    with pytest.raises(UsageError, match="'odd' .* neither a file nor a folder"):
        copy_version(source, tmp_path / "to")
    assert not list((tmp_path / "to").iterdir())


def test_an_existing_version_is_not_replaced(source, version):
    before = verify(version)
    make_writable(version)
    with pytest.raises(UsageError, match="never replaced"):
        copy_version(source, version)
    assert verify(version) == before


def test_the_folder_of_a_new_file_system_is_left_out(source, tmp_path):
    (tmp_path / "to" / "lost+found").mkdir(parents=True)
    copied = copy_version(source, tmp_path / "to")
    (tmp_path / "to" / "lost+found").chmod(0o700)
    (tmp_path / "to" / "lost+found" / "#12").write_text("")
    assert verify(tmp_path / "to") == copied.digest


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / "from" / "below").mkdir(parents=True)
    (tmp_path / "to").mkdir()
    with pytest.raises(UsageError, match="has no files"):
        copy_version(tmp_path / "from", tmp_path / "to")


def test_an_error_names_the_folder(source, tmp_path):
    with pytest.raises(DataSetError, match=r"could not be copied to .*: 'to': No such file or directory"):
        copy_version(source, tmp_path / "to")


def test_the_commands_for_administrators(source, tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "farandole.datasets.versions", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    (tmp_path / "to").mkdir()
    copied = run("copy", source, tmp_path / "to")
    assert copied.stdout.startswith("sha256:"), copied.stderr
    assert run("verify", tmp_path / "to").stdout == copied.stdout
    refused = run("copy", source, tmp_path / "to")
    assert refused.returncode == 1
    assert "never replaced" in refused.stderr
