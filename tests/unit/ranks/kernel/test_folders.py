"""Tests for the rank's side of copies of folders. tests/unit/driver/cells/test_folders.py tests both sides."""

import pytest
from farandole.exceptions import TransferError
from farandole.ranks.kernel import folders


def test_a_page_may_be_asked_for_again_and_only_the_newest_listing_is_kept(tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
    for number, page in [(0, [("a", 0)]), (0, [("a", 0)]), (1, [("b", 0)]), (2, []), (2, [])]:
        assert folders.names(str(tmp_path), "first", number, 1) == page
    folders.names(str(tmp_path), "second", 0, 1)
    assert list(folders._listings) == ["second"]


def test_a_file_in_place_of_a_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(TransferError, match="'.*file' on the workers is not a folder"):
        folders.names("file", "key", 0, 1)
    with pytest.raises(TransferError, match="there is no folder '.*~nobody-here' on the workers"):
        folders.names("~nobody-here", "key", 0, 1)
