from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from spawner_config.access.transport import check_transport
from spawner_config.deployment import Front, configure_proxied_hub
from spawner_config.origins.compose import has_https
from spawner_config.settings import Settings, SettingsError

LOGIN = {
    "CONFIGPROXY_AUTH_TOKEN": "0123456789abcdef" * 4,
    "FARANDOLE_ADMIN": "ada",
    "FARANDOLE_ADMIN_PASSWORD": "N4vzUqPqzHnVJb1m",
}


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.168.1.5", "2001:db8::1"])
def test_a_hub_for_others_without_https_is_refused(bind: str) -> None:
    with pytest.raises(SettingsError, match="no HTTPS.*COMPOSE_PROFILES=tls or caddy.*FARANDOLE_HTTP=insecure"):
        check_transport({"FARANDOLE_BIND": bind})
    for allowed in ({"FARANDOLE_HTTP": "insecure"}, {"FARANDOLE_HTTPS": "yes"}):
        check_transport({"FARANDOLE_BIND": bind, **allowed})


@pytest.mark.parametrize("services", ["postgres,tls", "caddy"])
def test_https_at_another_port_does_not_excuse_http_at_the_proxys(services: str) -> None:
    check_transport({"COMPOSE_PROFILES": services})
    with pytest.raises(SettingsError, match="FARANDOLE_BIND is '0.0.0.0' and there is no HTTPS"):
        check_transport({"COMPOSE_PROFILES": services, "FARANDOLE_BIND": "0.0.0.0"})


@pytest.mark.parametrize("bind", ["", "127.0.0.1", "::1", "[::1]", "localhost"])
def test_a_hub_for_this_machine_needs_no_https(bind: str) -> None:
    check_transport({"FARANDOLE_BIND": bind})


@pytest.mark.parametrize(
    ("key", "value", "wanted"), [("FARANDOLE_HTTP", "yes", "insecure"), ("FARANDOLE_HTTPS", "on", "yes or no")]
)
def test_another_word_is_refused(key: str, value: str, wanted: str) -> None:
    with pytest.raises(SettingsError, match=f"{key} is '{value}'. It must be .*{wanted}"):
        check_transport({key: value})


@pytest.mark.parametrize(
    "environment", [{"FARANDOLE_HTTPS": "yes"}, {"COMPOSE_PROFILES": "tls"}, {"COMPOSE_PROFILES": "gpu,caddy"}]
)
def test_behind_https_cookies_are_secure_and_browsers_stay_with_https(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in LOGIN.items():
        monkeypatch.setenv(key, value)
    c: Any = Config()
    where = {"hub_url": "http://hub:8081", "proxy_api": "http://proxy-api:8001", "token": "FARANDOLE_PROXY_TOKEN"}
    c.JupyterHub.tornado_settings = {}
    configure_proxied_hub(c, Settings(), front=Front(https=has_https(environment), port=443), **where)
    assert c.JupyterHub.tornado_settings == {
        "cookie_options": {"secure": True},
        "headers": {"Strict-Transport-Security": "max-age=31536000; includeSubDomains"},
    }
    # If all users share one origin, other applications may use the hosts below the hub's host.
    configure_proxied_hub(c, Settings(one_origin=True), front=Front(https=True, port=443), **where)
    assert c.JupyterHub.tornado_settings["headers"] == {"Strict-Transport-Security": "max-age=31536000"}
    c.JupyterHub.tornado_settings = {}
    configure_proxied_hub(c, Settings(), front=Front(https=False, port=8000), **where)
    assert c.JupyterHub.tornado_settings == {}
