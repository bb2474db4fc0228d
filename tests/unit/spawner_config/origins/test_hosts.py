"""Tests that the hosts of users are valid and unique, and readable if possible."""

import pytest

from spawner_config.origins.hosts import (
    HASHED,
    LABEL_LENGTH,
    PublicAddress,
    host_label,
    is_domain,
    same_host,
    subdomain_hook,
)

STRANGE = ["Ada", "ada@example.org", "ada_l", "a--b", "xn--ada", "-ada", "ada-", "é", "../x", "", "n" * 64, "a.b", "xn"]


@pytest.mark.parametrize("name", ["ada", "ada-lovelace", "a", "42", "x1-2-3", "n" * 63])
def test_a_safe_name_is_its_own_host(name):
    assert subdomain_hook(name, "hub.localhost", "user") == f"{name}.hub.localhost"


@pytest.mark.parametrize("name", [name for name in STRANGE if name != "xn"])
def test_any_other_name_gets_a_stub_and_160_bits_of_a_hash(name):
    label = host_label(name)
    assert HASHED.fullmatch(label)
    assert len(label) <= LABEL_LENGTH
    assert len(label.rpartition("--")[2]) * 5 >= 128
    assert label == label.lower()
    # Browsers would treat a label with hyphens in these positions as an internationalized domain name.
    assert label[2:4] != "--"


def test_no_two_names_have_one_host():
    taken = {host_label(name) for name in STRANGE}
    assert len(taken) == len(STRANGE)
    # A user cannot get the host of another user by choosing that host's label as a name.
    assert {host_label(label) for label in taken if HASHED.fullmatch(label)}.isdisjoint(taken)


def test_a_service_has_the_hubs_own_host():
    assert subdomain_hook("operators", "hub.localhost", "service") == "hub.localhost"


def test_names_with_one_host_are_found_without_case(monkeypatch):
    monkeypatch.setattr("spawner_config.origins.hosts.host_label", lambda name: name.strip("_"))
    assert same_host("ada", ["ada", "grace"]) is None
    assert same_host("ada", ["grace", "ADA_"]) == "ADA_"
    assert same_host("Ada", ["aDa"]) == "aDa"


@pytest.mark.parametrize("text", ["hub.localhost", "hub.example.org", "a-b.c", "1.hub.example"])
def test_a_domain(text):
    assert is_domain(text)


@pytest.mark.parametrize(
    "text",
    ["localhost", "10.0.0.5", "Hub.example.org", "hub.example.org.", ".org", "a..b", "http://a.b", "a.b:1", "a.1"],
)
def test_no_domain(text):
    assert not is_domain(text)


@pytest.mark.parametrize(
    ("scheme", "port", "url"),
    [("http", 8000, "http://hub.test:8000"), ("https", 443, "https://hub.test"), ("http", 80, "http://hub.test")],
)
def test_the_address_has_the_port_that_browsers_show(scheme, port, url):
    assert PublicAddress(scheme=scheme, domain="hub.test", port=port).url == url


def test_a_second_scan_of_ten_thousand_users_computes_no_hash_again():
    names = [f"user{number}@example.org" for number in range(10_000)]
    assert same_host("ada@example.org", names) is None
    computed = host_label.cache_info().misses
    assert same_host("ada@example.org", names) is None
    assert host_label.cache_info().misses == computed
