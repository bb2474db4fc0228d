"""Tests for how Farandole's extension changes the responses of notebook servers."""

from types import SimpleNamespace

import pytest
from farandole.server.notebook import hide_token, keep_https


class Provider:
    """A fake of JupyterHub's identity provider."""

    def page_config_hook(self, _handler, page_config):
        page_config["hubUser"], page_config["token"] = "ada", "secret"
        return page_config


@pytest.mark.parametrize("copied", [False, True])
def test_the_page_has_all_but_the_token(copied):
    provider = Provider()
    settings = {"page_config_hook": provider.page_config_hook} if copied else {}
    hide_token(SimpleNamespace(identity_provider=provider, web_app=SimpleNamespace(settings=settings)))
    # If JupyterHub's extension is loaded after Farandole's extension, it copies the hook only now.
    settings["page_config_hook"] = settings["page_config_hook"] if copied else provider.page_config_hook
    shared = {"appName": "JupyterLab"}
    assert settings["page_config_hook"](None, shared) == {"appName": "JupyterLab", "hubUser": "ada", "token": ""}
    assert "secret" not in shared.values()


def test_without_a_hub_nothing_changes():
    settings = {}
    hide_token(SimpleNamespace(identity_provider=object(), web_app=SimpleNamespace(settings=settings)))
    assert settings == {}


def test_browsers_stay_with_https_at_the_host_of_a_server(monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_HOST", "https://hub.example.org")
    settings = {"headers": {"X-JupyterHub-Version": "6"}, "xsrf_cookie_kwargs": {"path": "/user/ada/"}}
    keep_https(settings)
    assert settings == {
        "headers": {"X-JupyterHub-Version": "6", "Strict-Transport-Security": "max-age=31536000"},
        "xsrf_cookie_kwargs": {"path": "/user/ada/", "secure": True},
    }


def test_without_https_no_cookie_is_limited_to_it(monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_HOST", "http://hub.localhost:8000")
    settings = {}
    keep_https(settings)
    assert settings == {}
