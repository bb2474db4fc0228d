"""Tests for what snapshots leave out."""

from __future__ import annotations

import pytest
from farandole.exceptions import UsageError
from farandole.snapshots.choice import DERIVED, FILE, Choice, read_choice


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Write the user's file in a home, and return the choice in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FARANDOLE_RUNS", raising=False)

    def write(text):
        (tmp_path / FILE).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / FILE).write_text(text)
        return read_choice(tmp_path)

    return write


def test_derived_files_and_checkpoints_are_left_out_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RUNS", "/data/runs [1]")
    choice = read_choice(tmp_path)
    assert choice.left_out() == (*DERIVED, "/data/runs [1]/*/checkpoints")
    assert "/data/runs \\[1\\]/*/checkpoints" in choice.patterns(tmp_path)
    assert f"{tmp_path}/.cache" in choice.patterns(tmp_path)


def test_the_user_chooses(settings, tmp_path):
    choice = settings('runs = false\nexclude = ["scratch", "~/down*"]\ninclude = ["node_modules"]')
    left = [one for one in DERIVED if one != "node_modules"]
    assert choice.left_out() == (*left, f"{tmp_path}/farandole/runs", "scratch", "~/down*")
    assert choice.patterns(tmp_path)[-3:-1] == ["scratch", f"{tmp_path}/down*"]
    assert settings("checkpoints = true").left_out() == DERIVED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run = false", r"has 'run'; it may have runs, .*Did you mean 'runs'\?"),
        ("runs = 1", "'runs' in .* must be true or false"),
        ('exclude = "scratch"', r"'exclude' in .* must be a list of names or patterns, such as"),
        ('exclude = [""]', "must be a list of names or patterns"),
        ('exclude = ["!all"]', "must be a list of names or patterns"),
        (r'exclude = ["a\u0000"]', "must be a list of names or patterns"),
        ("exclude = [1]", "must be a list of names or patterns"),
        ('include = ["scratch"]', "has 'scratch', which is not left out by default; it may have ~/.cache"),
        ("runs =", "cannot be read: .*Correct or remove it"),
        ("\0", "cannot be read"),
    ],
)
def test_a_file_that_is_not_valid_is_refused(settings, text, message):
    with pytest.raises(UsageError, match=message):
        settings(text)


def test_a_file_that_is_not_text_is_refused(tmp_path, settings):
    settings("")
    (tmp_path / FILE).write_bytes(b"runs = \xff")
    with pytest.raises(UsageError, match="cannot be read"):
        read_choice(tmp_path)


@pytest.mark.parametrize("pattern", ["home", "h*", "node_[m]odules", "raw/*.tmp"])
def test_a_pattern_that_may_match_a_folder_above_the_home_leaves_out_only_what_is_in_the_home(tmp_path, pattern):
    home = tmp_path / "home"
    assert Choice(exclude=(pattern,)).patterns(home)[-2] == f"{home}/**/{pattern}"
