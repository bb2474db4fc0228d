"""Tests for mirrors of versions from folders. tests/unit/server/test_data_sets.py has those from notebook servers."""

import os
import signal
import ssl
import subprocess
import sys
from io import BytesIO

import pytest
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.incomplete import incomplete
from farandole.datasets.versions.manifest import MANIFEST, PART, entries_of, manifest_of, verify
from farandole.datasets.versions.mirror import mirror
from farandole.datasets.versions.names import parse_version
from farandole.datasets.versions.sources import TOKEN, FolderSource, ServerSource, decode, encode, open_source
from farandole.exceptions import DataSetError, UsageError

DIGITS = parse_version("digits@2")
NAMES = ["a.txt", "train/b.bin", "train/c c.bin", os.fsdecode(b"not-utf8-\xff"), "new\nline"]
DIE = """
import os, pathlib, signal, sys
from farandole.datasets.versions import mirror, sources
left, download = [int(sys.argv[3])], mirror._download
def dying(source, path, part):
    left[0] -= 1
    if left[0] < 0:
        part.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return download(source, path, part)
mirror._download = dying
mirror.mirror(sources.FolderSource(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]))
"""


class Counting(FolderSource):
    """A source that records which files were read."""

    def __init__(self, folder):
        super().__init__(folder)
        self.read = []

    def open(self, path):
        if path != MANIFEST:
            self.read.append(path)
        return super().open(path)


def make_version(folder, contents):
    source = folder.with_name(f"{folder.name}-source")
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    folder.mkdir(parents=True)
    return copy_version(source, folder).digest


@pytest.fixture
def origin(tmp_path):
    """A version on the other cluster."""
    make_version(tmp_path / "there" / "digits" / "2", {name: f"content of {name!r}" for name in NAMES})
    return tmp_path / "there" / "digits" / "2"


@pytest.fixture
def target(tmp_path):
    """An empty volume."""
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    return tmp_path / "volume"


def writable(folder):
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def test_a_mirror_is_equal_and_read_only(origin, target):
    done = mirror(FolderSource(origin), target)
    assert (done.copied, done.files) == (len(NAMES), len(NAMES))
    assert done.digest == verify(target) == verify(origin)
    assert (target / MANIFEST).read_bytes() == (origin / MANIFEST).read_bytes()
    checked = subprocess.run(["sha256sum", "--strict", "--quiet", "-c", MANIFEST], cwd=target, check=False)
    assert checked.returncode == 0
    assert {path.stat().st_mode & 0o222 for path in target.rglob("*") if path.name != "lost+found"} == {0}


def test_a_second_mirror_copies_nothing(origin, target):
    mirror(FolderSource(origin), target)
    source = Counting(origin)
    assert mirror(source, target).copied == 0
    assert source.read == []


@pytest.mark.parametrize("moment", range(len(NAMES)))
def test_a_killed_mirror_is_no_version_and_continues(origin, target, moment):
    died = subprocess.run([sys.executable, "-c", DIE, origin, target, str(moment)], check=False)
    assert died.returncode == -signal.SIGKILL
    with pytest.raises(DataSetError, match="is not a version"):
        verify(target)
    source = Counting(origin)
    assert mirror(source, target).copied == len(NAMES) - moment
    assert len(source.read) == len(NAMES) - moment
    assert verify(target) == verify(origin)


def test_a_folder_that_is_no_mirror_is_left_alone(origin, target):
    (target / "mine.txt").write_text("not for deletion")
    (target / "a.txt").write_text("mine as well")
    with pytest.raises(UsageError, match=r"is not empty: it has 'a\.txt'"):
        mirror(FolderSource(origin), target)
    assert sorted(path.name for path in target.iterdir()) == ["a.txt", "lost+found", "mine.txt"]
    assert (target / "a.txt").read_text() == "mine as well"


def test_two_mirrors_at_the_same_time_do_not_mix(origin, target):
    with incomplete(target), pytest.raises(DataSetError, match="another process writes a version to"):
        mirror(FolderSource(origin), target)
    assert mirror(FolderSource(origin), target).copied == len(NAMES)


def test_what_does_not_belong_to_the_version_is_deleted_from_an_earlier_mirror(origin, target):
    (target / PART).touch()
    (target / "a.txt").write_text("another version")
    (target / "train" / "b.bin").mkdir(parents=True)
    (target / "train" / "b.bin" / "left.txt").write_text("")
    (target / "train").chmod(0o555)
    assert mirror(FolderSource(origin), target).copied == len(NAMES)
    assert verify(target) == verify(origin)


def test_files_with_the_same_content_come_from_other_versions(origin, target, tmp_path):
    make_version(tmp_path / "1", {"old name.txt": "content of 'a.txt'", "train/b.bin": "another"})
    source = Counting(origin)
    assert mirror(source, target, others=[tmp_path / "1", tmp_path / "nowhere"]).copied == len(NAMES)
    assert sorted(source.read) == sorted(set(NAMES) - {"a.txt"})
    assert verify(target) == verify(origin)


def test_a_damaged_other_version_does_no_harm(origin, target, tmp_path):
    make_version(tmp_path / "1", {name: f"content of {name!r}" for name in NAMES})
    writable(tmp_path / "1")
    (tmp_path / "1" / "a.txt").write_text("damaged")
    (tmp_path / "1" / "train" / "b.bin").unlink()
    source = Counting(origin)
    mirror(source, target, others=[tmp_path / "1"])
    assert sorted(source.read) == ["a.txt", "train/b.bin"]
    assert verify(target) == verify(origin)


def test_an_existing_version_is_not_replaced(origin, target, tmp_path):
    digest = make_version(tmp_path / "1", {"a.txt": "another"})
    with pytest.raises(UsageError, match=f"has a version with the digest {digest}.*never replaced"):
        mirror(FolderSource(origin), tmp_path / "1")
    assert verify(tmp_path / "1") == digest


def test_a_file_that_differs_from_the_manifest_is_named_and_the_others_are_kept(origin, target):
    writable(origin)
    (origin / "train" / "b.bin").write_text("damaged")
    with pytest.raises(DataSetError, match=r"'train/b\.bin' from the source differs from its manifest"):
        mirror(FolderSource(origin), target)
    assert not (target / MANIFEST).exists()
    assert (target / "a.txt").exists()
    assert [path.name for path in target.iterdir() if path.name.startswith(".")] == [PART]
    (origin / "train" / "b.bin").write_text("content of 'train/b.bin'")
    assert mirror(FolderSource(origin), target).digest == verify(target)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"no manifest\n",
        manifest_of([("../outside.txt", "0" * 64)]),
        manifest_of([("/etc/outside", "0" * 64)]),
        manifest_of([("a/../../b", "0" * 64)]),
        manifest_of([(MANIFEST, "0" * 64)]),
        manifest_of([("lost+found/a", "0" * 64)]),
        manifest_of([("a//b", "0" * 64)]),
        manifest_of([("b", "0" * 64), ("a", "0" * 64)]),
        manifest_of([("a", "0" * 64), ("a", "1" * 64)]),
        manifest_of([("a", "0" * 64)])[:-1],
        manifest_of([("a", "0" * 63)]),
        b"\\" + manifest_of([("a", "0" * 64)]),
    ],
)
def test_a_manifest_from_elsewhere_is_checked(target, manifest):
    class Evil(FolderSource):
        def manifest(self):
            return manifest

        def open(self, _path):
            return BytesIO(b"")

    with pytest.raises(DataSetError, match="manifest"):
        mirror(Evil(target), target)
    assert [path.name for path in target.parent.rglob("*")] == ["volume", "lost+found"]


def test_a_manifest_is_read_as_it_was_written(origin):
    assert sorted(entries_of((origin / MANIFEST).read_bytes())) == sorted(NAMES)


def test_names_of_files_pass_through_urls():
    for name in NAMES:
        assert decode(encode(name)) == name
        assert encode(name).isascii()
    with pytest.raises(ValueError, match=r"[Nn]on-base64|padding|base64"):
        decode("not base64!")


def test_a_folder_is_a_version_or_has_it(origin, tmp_path):
    for folder in (origin, tmp_path / "there"):
        assert open_source(str(folder), DIGITS).manifest() == (origin / MANIFEST).read_bytes()
    with pytest.raises(UsageError, match="neither .* is a version of a data set"):
        open_source(str(tmp_path), DIGITS)


def test_an_address_must_be_that_of_a_server_and_needs_a_token(monkeypatch):
    with pytest.raises(UsageError, match="is not the address of a notebook server"):
        open_source("https://hub.example.org/hub/home", DIGITS)
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(UsageError, match=f"set {TOKEN}"):
        open_source("https://hub.example.org/user/ada/lab", DIGITS)


def test_a_server_that_does_not_answer_is_named(monkeypatch, target):
    monkeypatch.setenv(TOKEN, "secret")
    source = open_source("http://127.0.0.1:1/user/ada/lab/tree?reset", DIGITS)
    with pytest.raises(DataSetError, match=r"127\.0\.0\.1:1 does not answer"):
        mirror(source, target)


def test_the_command_prints_the_digest(origin, target):
    command = [sys.executable, "-m", "farandole.datasets.versions", "mirror", origin, "digits@2", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == verify(origin), done.stderr


def test_a_full_disk_keeps_what_is_complete_and_the_mirror_continues(target, tmp_path):
    large = tmp_path / "3"
    make_version(large, {"a.txt": "small", "large.bin": "x" * 2_000_000})
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); "
    run = "import sys, runpy; sys.argv[0] = 'x'; runpy.run_module('farandole.datasets.versions', run_name='__main__')"
    command = [sys.executable, "-c", limit + run, "mirror", large, "digits@3", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "the mirror in" in done.stderr
    assert "File too large. Run it again to continue." in done.stderr
    assert (target / "a.txt").read_text() == "small"
    assert mirror(FolderSource(large), target).copied == 1
    assert verify(target) == verify(large)


def test_certificates_are_read_once_and_not_for_each_file(monkeypatch):
    """Reading them takes longer than most files."""
    read, load = [], ssl.SSLContext.load_default_certs
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *words: read.append(load(*words)))
    source = ServerSource("https://127.0.0.1:1/user/ada", DIGITS, "secret")
    for name in NAMES:
        with pytest.raises(DataSetError, match="does not answer"):
            source.open(name)
    assert len(read) == 1
