"""Checkpoints that other users may have written are not unpickled. The pickle in these tests would create a file."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from farandole import checkpoint
from farandole import state as make_state
from farandole.exceptions import UsageError
from farandole.protocol import GROUP_FOLDERS
from farandole.ranks import run
from farandole.ranks.checkpoints import files
from farandole.ranks.state.state import State
from farandole.runs.checkpoints.intact import described
from farandole.runs.checkpoints.trust import UntrustedError, check_trusted

from spawner_config.shares import GROUPS_PLACE


class Trap:
    """An object whose unpickling creates a file."""

    def __reduce__(self) -> Any:
        return open, ("trapped", "w")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def made() -> Path:
    """Return a checkpoint written by this user. It contains a tensor, so the index of the tensors is a pickle too."""
    state = _state()
    checkpoint(state, every=1, folder="c").save()
    [path] = files.checkpoint_paths(Path("c"))
    return path


def _state() -> State:
    return make_state(torch.nn.Linear(2, 1), step=0)


def _set_a_trap(path: Path) -> None:
    """Replace the outline with a malicious outline and update its checksum, as an attacker would."""
    outline = path / files.OUTLINE
    manifest = (path / "manifest.json").read_text()
    before = described(outline)
    outline.write_bytes(pickle.dumps(Trap()))
    after = described(outline)
    manifest = manifest.replace(before["sha256"], after["sha256"])
    (path / "manifest.json").write_text(manifest.replace(f'"bytes": {before["bytes"]}', f'"bytes": {after["bytes"]}'))


def _give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a path appear to belong to another user."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)


@pytest.mark.parametrize("name", [".", files.OUTLINE, ".metadata", "__0_0.distcp"])
def test_a_checkpoint_of_another_user_is_not_unpickled(made: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_a_trap(made)
    _give_away(made / name, monkeypatch)
    with pytest.raises(UsageError, match=r"not loaded, because other users may.*belongs to user id.*`cp -r`"):
        checkpoint(_state(), resume="c")
    assert not Path("trapped").exists()


@pytest.mark.parametrize(("mode", "words"), [(0o777, "written by all users"), (0o775, "written by the group 12345")])
def test_a_checkpoint_that_others_can_write_is_not_unpickled(made: Path, mode: int, words: str) -> None:
    _set_a_trap(made)
    made.chmod(mode)
    if os.geteuid() == 0:
        os.chown(made, 0, 12345)
    elif mode == 0o775:
        words = ""
    with pytest.raises(UsageError, match=words):
        checkpoint(_state(), resume="c")
    assert not Path("trapped").exists()


def test_a_checkpoint_in_a_folder_of_a_group_is_refused_although_its_owner_has_our_id(made: Path) -> None:
    """On the servers of a hub, all users have the same user id."""
    with pytest.raises(UntrustedError, match="in the folder of a group, where all members can write"):
        check_trusted(made, groups=Path.cwd())
    check_trusted(made)
    assert GROUP_FOLDERS == GROUPS_PLACE


def test_a_link_does_not_hide_the_folder_of_a_group(made: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(made.absolute())
    with pytest.raises(UntrustedError, match="folder of a group"):
        check_trusted(link, groups=tmp_path / "c")


def test_a_link_in_a_checkpoint_is_refused(made: Path) -> None:
    (made / files.OUTLINE).rename("elsewhere")
    (made / files.OUTLINE).symlink_to(Path("elsewhere").absolute())
    with pytest.raises(UntrustedError, match="is a link"):
        files.read(made)


def test_own_checkpoints_and_those_of_root_are_loaded(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint(_state(), resume="c").resumed == 0
    if os.geteuid() == 0:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        check_trusted(made)


def test_on_kubernetes_the_own_group_may_write_files(made: Path) -> None:
    """On Kubernetes, a volume belongs to the user's own group, which may write to all of its files."""
    made.chmod(0o2770)
    for path in made.iterdir():
        path.chmod(0o660)
    if os.getegid() == os.geteuid():
        check_trusted(made)


def test_new_checkpoints_are_written_by_their_user_only(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        checkpoint(_state(), every=1, folder="open").save()
    finally:
        os.umask(before)
    [path] = files.checkpoint_paths(Path("open"))
    assert [each for each in (path, *path.iterdir()) if each.stat().st_mode & 0o022] == []
    check_trusted(path)


def test_a_new_rank_that_may_not_load_a_checkpoint_says_so_and_continues(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(run, "notice", lambda text, **_: told.append(text))
    _set_a_trap(made)
    made.chmod(0o777)
    monkeypatch.setattr(files, "written_after", lambda *_: [made])
    assert checkpoint(_state(), folder="c").catch_up() is None
    assert "written by all users" in told[0]
    assert not Path("trapped").exists()
