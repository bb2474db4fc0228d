"""Tokens are kept for each hub, in a file of the user."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from farandole.cli import credentials
from farandole.cli.credentials import Login, address_of, is_cleartext
from farandole.exceptions import UsageError

ADA = Login(url="https://hub.example.org", user="ada", token="secret")
OTHER = Login(url="http://10.0.0.1:8000/lab", user="ada", token="other")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "farandole"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("https://hub.example.org", "https://hub.example.org"),
        ("hub.example.org/", "https://hub.example.org"),
        ("https://hub.example.org/hub/home", "https://hub.example.org"),
        ("http://10.0.0.1:8000/lab/hub/token?x=1", "http://10.0.0.1:8000/lab"),
        ("https://hub.example.org/user/ada/lab", "https://hub.example.org"),
        ("https://example.org/hubs/team/hub/home", "https://example.org/hubs/team"),
        ("https://Hub.Example.ORG:8443", "https://hub.example.org:8443"),
        ("https://ada:secret@hub.example.org", "https://hub.example.org"),
        ("http://[::1]:8000/hub/", "http://[::1]:8000"),
    ],
)
def test_the_address_of_a_hub_has_no_path_of_a_page(given, address):
    assert address_of(given) == address


@pytest.mark.parametrize(
    "given", ["ftp://hub.example.org", "https://", "file:///etc/passwd", "https://[::1", "https://hub:port"]
)
def test_what_is_no_address_is_refused(given):
    with pytest.raises(UsageError, match=r"is not the address of a hub; give the one in the browser"):
        address_of(given)


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("https://hub.example.org", False),
        ("http://hub.example.org", True),
        ("http://10.0.0.1:8000", True),
        ("http://127.0.0.2:8000", False),
        ("http://[::1]:8000", False),
        ("http://localhost:8000", False),
        ("http://hub.localhost:8000", False),
    ],
)
def test_only_unencrypted_requests_to_other_machines_can_be_read_on_their_way(url, readable):
    assert is_cleartext(url) is readable


def test_an_interrupted_login_leaves_no_token(folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(credentials.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        credentials.keep(ADA)
    assert [path.name for path in folder.iterdir()] == [".hubs.lock"]


def test_the_file_is_never_readable_by_others(folder, monkeypatch):
    modes = []
    monkeypatch.setattr(credentials.os, "fsync", lambda number: modes.append(stat.S_IMODE(os.fstat(number).st_mode)))
    previous = os.umask(0)
    try:
        credentials.keep(ADA)
    finally:
        os.umask(previous)
    assert modes == [0o600]


def test_only_the_user_can_read_the_tokens(folder):
    assert credentials.logins() == {}
    credentials.keep(ADA)
    credentials.keep(OTHER)
    assert credentials.logins() == {ADA.url: ADA, OTHER.url: OTHER}
    assert stat.S_IMODE((folder / "hubs.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in folder.iterdir()) == [".hubs.lock", "hubs.json"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_login_is_shown_without_its_token():
    assert ADA.token not in f"{ADA} {ADA!r}"


def test_a_new_login_replaces_that_of_the_same_hub(folder):
    credentials.keep(ADA)
    newer = Login(url=ADA.url, user="grace", token="newer")
    credentials.keep(newer)
    assert credentials.logins() == {ADA.url: newer}
    credentials.forget(ADA.url)
    credentials.forget(ADA.url)  # another window has removed it
    assert credentials.logins() == {}


def test_the_only_hub_need_not_be_named():
    assert credentials.login_for(None) is None
    credentials.keep(ADA)
    assert credentials.login_for(None) == credentials.login_for(f"{ADA.url}/hub/home") == ADA
    credentials.keep(OTHER)
    with pytest.raises(UsageError, match=r"several hubs; choose one of them, .*`--hub URL`: http://10.*, https://hub"):
        credentials.login_for(None)
    assert credentials.login_for(OTHER.url) == OTHER


def test_tokens_that_others_can_read_are_not_used(folder):
    credentials.keep(ADA)
    (folder / "hubs.json").chmod(0o640)
    with pytest.raises(UsageError, match=r"other users of this machine can read the tokens in .*hubs.json"):
        credentials.logins()


def test_logins_at_the_same_time_are_all_kept():
    hubs = [Login(url=f"https://hub-{number}.example.org", user="ada", token="t") for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(credentials.keep, hubs))
    assert sorted(credentials.logins()) == sorted(login.url for login in hubs)


def test_a_file_that_cannot_be_read_is_named(folder):
    (folder / "hubs.json").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"the tokens in .*hubs.json cannot be read \(Is a directory\)"):
        credentials.logins()


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"https://x": {"user": "ada"}}', '{"https://x": 3}', '{"https://x": {"user": 1, "token": 2}}', "\xff"],
)
def test_a_damaged_file_is_named(folder, text):
    credentials.keep(ADA)
    (folder / "hubs.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"hubs.json is damaged .*run `farandole login` again"):
        credentials.logins()
