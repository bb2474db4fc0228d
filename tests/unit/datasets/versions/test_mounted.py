"""Tests for the versions that a server has."""

import json

import pytest
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.mounted import MISSING, VARIABLE, digests, find, mounted, variables
from farandole.exceptions import UsageError


@pytest.fixture
def version(tmp_path, monkeypatch):
    """A server with the version digits@1, and with web@2, whose folder is empty."""
    for name in ("source", "digits", "web"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "a.txt").write_text("1")
    folders = {"digits@1": str(tmp_path / "digits"), "web@2": str(tmp_path / "web")}
    monkeypatch.setenv(VARIABLE, variables(folders)[VARIABLE])
    return copy_version(tmp_path / "source", tmp_path / "digits")


def test_a_server_knows_its_versions_and_their_digests(version, tmp_path):
    assert mounted() == {"digits@1": tmp_path / "digits", "web@2": tmp_path / "web"}
    assert find("digits@1") == tmp_path / "digits"
    assert digests() == {"digits@1": version.digest, "web@2": MISSING}


def test_a_server_without_versions(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert variables({}) == mounted() == digests() == {}
    with pytest.raises(UsageError, match="no data set 'digits@1'; it has none"):
        find("digits@1")


def test_an_unknown_version_is_named_with_the_known_ones(monkeypatch):
    monkeypatch.setenv(VARIABLE, json.dumps({"digits@1": "/data/digits"}))
    with pytest.raises(UsageError, match=r"no data set 'digit@1'; it has digits@1.*Did you mean"):
        find("digit@1")
