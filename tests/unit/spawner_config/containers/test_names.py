"""Tests that container names are unique, and short enough to be resolved by an engine's DNS server."""

import pytest

from spawner_config.containers.names import LABEL_LENGTH, container_name

PREFIX = "farandole-server"
LONG = "ada.lovelace-of-the-analytical-engine@example.org"
LONGEST_PREFIX = f"{'f' * 27}-server"


@pytest.mark.parametrize(
    ("user", "server", "name"),
    [
        ("ada", "", f"{PREFIX}-ada"),
        ("ada", "main-w0", f"{PREFIX}-ada--main-w0-1dedeb1f"),
        ("root-of-all", "main-w0", f"{PREFIX}-root-of-all-52996cb6--main-w0-1dedeb1f"),
    ],
)
def test_a_short_name_is_complete(user, server, name):
    assert container_name(PREFIX, user, server) == name


@pytest.mark.parametrize("prefix", [PREFIX, LONGEST_PREFIX])
@pytest.mark.parametrize("user", ["ada", "a" * 30, "a" * 64, LONG])
def test_no_name_is_longer_than_a_label(prefix, user):
    servers = ["", *(f"{'c' * 27}-w{index}" for index in range(200))]
    names = [container_name(prefix, user, server) for server in servers]
    assert max(map(len, names)) <= LABEL_LENGTH
    assert len(set(names)) == len(names)


def test_truncated_names_are_unique():
    users = [f"{LONG}{index}" for index in range(200)] + ["a" * length for length in range(1, 65)]
    names = {container_name(PREFIX, user, server) for user in users for server in ("", "main-w0", "main-w1")}
    assert len(names) == 3 * len(users)
