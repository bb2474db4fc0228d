"""Tests for the public address of a hub, which depends on the services that docker-compose.yml runs."""

import pytest

from spawner_config.origins.compose import DEFAULTS, has_https, open_to_others, public_port
from spawner_config.settings import ROOT, SettingsError


@pytest.mark.parametrize(
    ("environ", "https", "port", "others"),
    [
        ({}, False, 8000, ""),
        ({"FARANDOLE_PORT": "9000", "FARANDOLE_BIND": ""}, False, 9000, ""),
        ({"FARANDOLE_BIND": "0.0.0.0"}, False, 8000, "FARANDOLE_BIND=0.0.0.0"),
        ({"FARANDOLE_BIND": "::1"}, False, 8000, ""),
        ({"FARANDOLE_BIND": "192.168.1.7"}, False, 8000, "FARANDOLE_BIND=192.168.1.7"),
        ({"COMPOSE_PROFILES": "tls,postgres"}, True, 443, "FARANDOLE_TLS_BIND=0.0.0.0"),
        ({"COMPOSE_PROFILES": "tls", "FARANDOLE_TLS_BIND": "127.0.0.1", "FARANDOLE_TLS_PORT": "8443"}, True, 8443, ""),
        ({"COMPOSE_PROFILES": "postgres, caddy"}, True, 443, "COMPOSE_PROFILES=caddy"),
        ({"FARANDOLE_HTTPS": "yes"}, True, 443, "FARANDOLE_HTTPS=yes"),
        ({"FARANDOLE_HTTPS": "yes", "FARANDOLE_PUBLIC_PORT": "8443"}, True, 8443, "FARANDOLE_HTTPS=yes"),
        ({"FARANDOLE_HTTPS": "yes", "FARANDOLE_BIND": "0.0.0.0"}, True, 443, "FARANDOLE_BIND=0.0.0.0"),
        (
            {"FARANDOLE_HTTPS": "yes", "COMPOSE_PROFILES": "tls", "FARANDOLE_TLS_BIND": "127.0.0.1"},
            True,
            443,
            "",
        ),
    ],
)
def test_the_address_follows_from_the_services(environ, https, port, others):
    assert (has_https(environ), public_port(environ), open_to_others(environ)) == (https, port, others)


@pytest.mark.parametrize("key", ["FARANDOLE_PORT", "FARANDOLE_PUBLIC_PORT"])
def test_a_wrong_port_is_named(key):
    with pytest.raises(SettingsError, match=f"{key} is '70000'"):
        public_port({key: "70000"})


def test_the_defaults_are_those_of_the_compose_file():
    text = (ROOT / "docker-compose.yml").read_text()
    for key, value in DEFAULTS.items():
        assert f"${{{key}:-{value}}}" in text
