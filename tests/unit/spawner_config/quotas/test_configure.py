"""Tests for what servers and their page learn about the size of homes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from farandole.quotas.home import LIMIT
from traitlets.config import Config

from spawner_config.quotas.configure import PATH, configure_quotas, describe_use
from spawner_config.quotas.records import HomeRecord, HomeRecords
from spawner_config.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


def configured(state: Path, *, claims: bool = False) -> Any:
    c = Config()
    c.Spawner.pre_spawn_hook = lambda spawner: spawner.environment.update(BEFORE="yes")
    c.Spawner.options_form = lambda _spawner: "<fieldset></fieldset>"
    c.JupyterHub.extra_handlers = [("/other", None)]
    configure_quotas(c, Settings(state=state), claims=claims)
    return c


def spawner(name: str = "", user: str = "ada", *groups: str) -> Any:
    owner = SimpleNamespace(name=user, groups=[SimpleNamespace(name=group) for group in groups])
    return SimpleNamespace(name=name, user=owner, environment={})


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_HOME_SIZE", "1G, @vision: 2G")


@pytest.mark.parametrize(
    ("server", "limit"),
    [
        (spawner(), GIB),
        (spawner("second"), GIB),
        (spawner("main-w0"), GIB),
        (spawner("main-w0", "grace", "vision"), 2 * GIB),
        (spawner("serve-iris"), None),
    ],
)
async def test_servers_that_start_runs_know_the_limit(sizes: None, tmp_path: Path, server: Any, limit: int) -> None:
    server.environment = {}
    await configured(tmp_path).Spawner.pre_spawn_hook(server)
    assert server.environment == {"BEFORE": "yes", **({} if limit is None else {LIMIT: str(limit)})}


@pytest.mark.parametrize("claims", [False, True])
async def test_only_claims_have_a_limit_without_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, claims: bool
) -> None:
    monkeypatch.delenv("FARANDOLE_HOME_SIZE", raising=False)
    c = configured(tmp_path, claims=claims)
    assert ([rule[0] for rule in c.JupyterHub.extra_handlers] == ["/other", PATH]) is claims
    server = spawner()
    if claims:
        await c.Spawner.pre_spawn_hook(server)
    assert server.environment.get(LIMIT) == (str(10 * GIB) if claims else None)


def test_the_form_of_notebook_servers_shows_the_use(sizes: None, tmp_path: Path) -> None:
    form = configured(tmp_path).Spawner.options_form
    assert form(spawner()) == "<fieldset></fieldset>\n<p>Your home may take 1.0 GiB.</p>"
    HomeRecords(tmp_path).write("ada", HomeRecord(used=GIB // 2, limit=GIB, time=1.0))
    assert "Your home: 512 MiB of 1.0 GiB used, 512 MiB free, " in form(spawner())
    assert form(spawner("main-w0")) == "<fieldset></fieldset>"
    # Another user has another home.
    assert "may take 2.0 GiB" in form(spawner("", "grace", "vision"))


@pytest.mark.parametrize(
    ("used", "limit", "said"),
    [
        (GIB, 4 * GIB, "<p>Your home: 1.0 GiB of 4.0 GiB used, 3.0 GiB free, 2:00 ago.</p>"),
        # The operator has made homes smaller since then.
        (GIB, 8 * GIB, "<p>Your home: 1.0 GiB of 4.0 GiB used, 3.0 GiB free, 2:00 ago.</p>"),
        # A claim that existed keeps its size.
        (GIB, 2 * GIB, "<p>Your home: 1.0 GiB of 2.0 GiB used, 1.0 GiB free, 2:00 ago.</p>"),
        (5 * GIB, 4 * GIB, '<p class="alert alert-warning">Your home: 5.0 GiB of 4.0 GiB used, 0 B free, 2:00 ago. '),
    ],
)
def test_the_use_is_that_of_the_last_measurement(used: int, limit: int, said: str) -> None:
    record = HomeRecord(used=used, limit=limit, time=100.0)
    assert describe_use(record, 4 * GIB, 220.0).startswith(said)
