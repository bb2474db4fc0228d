"""Tests for the text that `make up` prints."""

import re
from types import SimpleNamespace

from traitlets.config import Config

from hub.process import HubProcess
from hub.up import NOTEBOOK, banner
from spawner_config.local import configure
from spawner_config.profiles.profiles import read_profiles
from spawner_config.settings import ROOT, Settings

ADDRESS = re.compile(r"^  (hub|notebook) +(\S+)$", re.MULTILINE)


def test_the_banner_and_the_readme_name_the_addresses_at_which_the_hub_answers(tmp_path):
    settings = Settings(state=tmp_path)
    c = Config()
    configure(c, settings, read_profiles(settings.profiles, None))
    own = c.JupyterHub.subdomain_host
    assert (own, c.JupyterHub.bind_url) == ("http://hub.localhost:8000", "http://127.0.0.1:8000")
    url = HubProcess.url.fget(SimpleNamespace(settings=settings))
    hub = SimpleNamespace(url=url, settings=settings, password="secret", log_path=tmp_path / "hub.log")
    named = {"hub": own, "notebook": f"{own}/hub/user-redirect/lab/tree/{NOTEBOOK}"}
    assert dict(ADDRESS.findall(banner(hub))) == named
    assert dict(ADDRESS.findall((ROOT / "README.md").read_text(encoding="utf-8"))) == named
    assert (ROOT / "notebooks" / NOTEBOOK).is_file()
