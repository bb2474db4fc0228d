"""Tests that a restore which is killed at any moment leaves the old or the new state, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.backup.swap import LOCK, STAGED, commit, finish_at_start, install, mark_complete, stage
from tests.clients.backups import tree

KEPT = {"hub.log": "log", "streams/data": "streams", "snapshots/.service/lock": "lock", LOCK: "", "hub.port": "1"}
OLD = {
    "jupyterhub.sqlite": "old",
    "jupyterhub.sqlite-journal": "old",
    "cookie_secret": "old",
    "notices/ada": "old",
    "homes/ada/file": "old",
    "homes/otto/file": "old",
    "snapshots/ada/config": "old",
}
NEW = {
    "jupyterhub.sqlite": "new",
    "cookie_secret": "new",
    "profiles.toml": "new",
    "homes/ada/file": "new",
    "homes/.hidden/file": "new",
    "snapshots/ada/config": "new",
}
MOST_CALLS = 40


class KilledError(BaseException):
    """Stands for the end of the process."""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


def prepare(state: Path) -> None:
    write(state, {**KEPT, **OLD})
    for name in ("homes", "snapshots", ""):
        new = stage(state / name if name else state)
        inside = {f"{name}/" if name else ""}.pop()
        others = () if name else ("homes/", "snapshots/")
        own = {key: text for key, text in NEW.items() if key.startswith(inside) and not key.startswith(others)}
        write(new, {key.removeprefix(inside): text for key, text in own.items()})
        if name:
            mark_complete(state / name)


def test_a_state_is_replaced_and_what_belongs_to_processes_stays(tmp_path: Path) -> None:
    prepare(tmp_path)
    commit(tmp_path)
    assert read(tmp_path) == {**KEPT, **NEW}


@pytest.mark.parametrize("method", ["rename", "touch", "rmdir", "mkdir"])
def test_a_kill_at_any_call_leaves_the_old_or_the_new_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    original = getattr(Path, method)
    seen = set()
    for number in range(MOST_CALLS):
        state = tmp_path / str(number)
        prepare(state)
        left = [number]

        def call(self: Path, *arguments: object, left: list[int] = left, **options: object) -> object:
            if not left[0]:
                raise KilledError
            left[0] -= 1
            return original(self, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Path, method, call)
            try:
                commit(state)
            except KilledError:
                seen.add("killed")
        finish_at_start(state)
        found = {name: text for name, text in read(state).items() if STAGED not in Path(name).parts}
        assert found in ({**KEPT, **OLD}, {**KEPT, **NEW})
        seen.add(found["cookie_secret"])
    assert "new" in seen


def test_a_restore_that_is_not_complete_changes_nothing_at_the_next_start(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(stage(tmp_path), NEW)
    write(stage(tmp_path / "homes"), {"ada/file": "new"})
    mark_complete(tmp_path / "homes")
    before = tree(tmp_path)
    finish_at_start(tmp_path)
    assert tree(tmp_path) == before
    finish_at_start(tmp_path / "missing")


def test_a_home_of_its_own_is_replaced_with_its_hidden_files(tmp_path: Path) -> None:
    write(tmp_path, {".bashrc": "old", "old": "old"})
    write(stage(tmp_path), {".bashrc": "new", "new": "new"})
    install(tmp_path)
    assert read(tmp_path)[".bashrc"] == "old"
    mark_complete(tmp_path)
    install(tmp_path)
    assert read(tmp_path) == {".bashrc": "new", "new": "new"}
