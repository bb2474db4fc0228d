from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from farandole.streams import Broker, hub_broker

from hub.process import HubProcess, HubProcessError, local_session
from spawner_config.settings import ROOT, Settings
from tests.clients.browser import BrowserError
from tests.clients.kernel import RemoteKernel
from tests.hub import RunningHub, run_hub
from tests.nats_server import ignore
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND

SENTENCE = "<strong>Farandole</strong>: one notebook cell trains on many nodes"
WORKER = {"role": "worker"}
SMALL = """
[limits]
workers_per_user = 1
ranks_per_worker = 2
[[profile]]
name = "tiny"
description = "Tiny"
"""


@pytest.fixture(scope="module")
def alice(hub: RunningHub) -> str:
    """A token for the user alice, who has a notebook server and the worker ring-w0."""
    hub.start_notebook("alice")
    token = hub.token_for("alice")
    hub.start_worker(token, "alice", "ring-w0", profile="cpu-2")
    return token


def test_any_name_logs_in_with_the_password_only(hub: RunningHub) -> None:
    hub.browser("somebody")
    with pytest.raises(BrowserError, match="refused the login"):
        type(hub.browser("somebody"))(hub.url, "somebody", "wrong")


def test_the_login_page_says_what_the_hub_is(hub: RunningHub) -> None:
    assert SENTENCE in local_session().get(f"{hub.url}/hub/login", timeout=30).text


def test_the_spawn_page_shows_the_profiles(hub: RunningHub) -> None:
    page = hub.browser("somebody").spawn_page()
    assert SENTENCE in page
    assert [f'value="{name}"' in page for name in ("cpu", "cpu-2", "lean")] == [True] * 3
    for text in ("2 ranks per worker", "no CPU limit", "no memory limit"):
        assert text in page


def test_a_worker_is_lean_and_knows_its_cluster(hub: RunningHub, alice: str) -> None:
    environment = hub.environment_of("alice", "ring-w0")
    assert environment["FARANDOLE_CLUSTER"] == "ring"
    assert environment["FARANDOLE_RANKS"] == "2"
    assert hub.api(alice, "GET", "/user/alice/ring-w0/api/status").status_code == 200
    assert hub.api(alice, "GET", "/user/alice/ring-w0/lab").status_code == 404


def test_a_user_gets_the_notebooks_in_a_separate_home(hub: RunningHub, alice: str) -> None:
    assert Path(hub.environment_of("alice", "")["HOME"]) == hub.state / "homes" / "alice"
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    listing = hub.api(alice, "GET", "/user/alice/api/contents/").json()["content"]
    assert names <= {entry["name"] for entry in listing}


def test_a_notebook_knows_the_magics_without_loading_them(hub: RunningHub) -> None:
    address = hub.start_notebook("alicia")
    with RemoteKernel(address, hub.token_for("alicia"), "new.ipynb") as kernel:
        assert kernel.execute("import sys; print('farandole.notebook.magics' in sys.modules)", deadline=60) == "False\n"
        assert "%cluster start: " in kernel.execute("%cluster start?", deadline=60)
    with RemoteKernel(address, hub.token_for("alicia"), "old.ipynb") as kernel:
        assert "already loaded" not in kernel.execute("%load_ext farandole\n%cluster start?", deadline=60)


def test_a_strange_name_stays_in_the_state_folder(hub: RunningHub) -> None:
    with pytest.raises(BrowserError):
        hub.browser("../../escape")
    user = "..%2f x"
    hub.start_worker(hub.token_for(user), quote(user, safe=""), "esc-w0")
    home = Path(hub.environment_of(user, "esc-w0")["HOME"])
    assert home.parent == hub.state / "homes"
    assert home.is_dir()


def test_a_workers_token_reaches_its_own_server_only(hub: RunningHub, alice: str) -> None:
    token = hub.environment_of("alice", "ring-w0")["JUPYTERHUB_API_TOKEN"]
    assert hub.api(token, "GET", "/user/alice/ring-w0/api/status").status_code == 200
    refused = [
        ("POST", "/hub/api/users/alice/servers/ring-w1", WORKER),
        ("POST", "/hub/api/users/alice/server", {}),
        ("DELETE", "/hub/api/users/alice/servers/ring-w0", None),
        ("POST", "/hub/api/users/alice/tokens", {}),
        ("GET", "/hub/api/users", None),
        ("GET", "/hub/api/users/alice/servers/ring-w0/progress", None),
        ("GET", "/user/alice/api/status", None),
        ("POST", "/user/alice/api/kernels", {}),
    ]
    answers = [hub.api(token, *request).status_code for request in refused]
    assert all(status in (403, 404) for status in answers), list(zip(refused, answers, strict=True))
    assert "servers" not in hub.api(token, "GET", "/hub/api/users/alice").json()


def test_a_driver_hands_a_worker_a_token_for_that_worker_alone(hub: RunningHub, alice: str) -> None:
    where = "/hub/api/farandole/users/alice/servers/ring-w0/token"
    token = hub.api(alice, "POST", where).json()["token"]
    assert hub.api(alice, "POST", where).json()["token"] == token
    assert hub.api(token, "GET", "/user/alice/ring-w0/api/status").status_code == 200
    refused = [
        ("POST", "/hub/api/users/alice/servers/ring-w1", WORKER),
        ("DELETE", "/hub/api/users/alice/servers/ring-w0", None),
        ("POST", "/hub/api/users/alice/tokens", {}),
        ("GET", "/user/alice/api/status", None),
    ]
    answers = [hub.api(token, *request).status_code for request in refused]
    assert all(status in (403, 404) for status in answers), list(zip(refused, answers, strict=True))
    assert hub.api(hub.token_for("bob"), "POST", where).status_code in (403, 404)
    assert hub.api(alice, "POST", where.replace("ring-w0", "ring-w9")).status_code == 409


def test_of_two_names_with_one_home_the_second_is_refused(hub: RunningHub) -> None:
    hub.browser(FIRST)
    with pytest.raises(BrowserError, match="refused the login"):
        hub.browser(SECOND)


def test_a_token_reaches_nothing_of_another_user(hub: RunningHub, alice: str) -> None:
    tokens = [hub.token_for("bob"), hub.browser("bob").make_token()]
    refused = [
        ("GET", "/hub/api/users/alice", None),
        ("POST", "/hub/api/users/alice/servers/ring-w1", WORKER),
        ("DELETE", "/hub/api/users/alice/servers/ring-w0", None),
        ("GET", "/hub/api/users/alice/servers/ring-w0/progress", None),
        ("POST", "/hub/api/users/alice/tokens", {}),
        ("GET", "/user/alice/api/status", None),
        ("GET", "/user/alice/ring-w0/api/status", None),
        ("POST", "/user/alice/ring-w0/api/kernels", {}),
    ]
    for token in tokens:
        answers = [hub.api(token, *request).status_code for request in refused]
        assert all(status in (403, 404) for status in answers), list(zip(refused, answers, strict=True))


def test_the_notebooks_own_token_starts_workers(hub: RunningHub, alice: str) -> None:
    token = hub.environment_of("alice", "")["JUPYTERHUB_API_TOKEN"]
    hub.start_worker(token, "alice", "own-w0")
    assert hub.api(token, "GET", "/user/alice/own-w0/api/status").status_code == 200
    assert hub.api(token, "DELETE", "/hub/api/users/alice/servers/own-w0", {"remove": True}).status_code in (202, 204)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("plain", {"role": "worker"}, "Let %cluster start and %serve choose the names"),
        ("bad-w0", {"role": "worker", "profile": "huge"}, "Choose one of: cpu, cpu-2, lean"),
        ("bad-w0", {"role": "worker", "ranks": 9}, "allows 1 to 8"),
    ],
)
def test_a_refused_server_is_a_400_with_the_remedy(
    hub: RunningHub, alice: str, name: str, options: dict[str, object], reason: str
) -> None:
    answer = hub.api(alice, "POST", f"/hub/api/users/alice/servers/{name}", options)
    assert answer.status_code == 400
    assert reason in answer.json()["message"]


def test_workers_stop_with_the_notebook_server_of_their_user(hub: RunningHub) -> None:
    browser = hub.browser("edsger")
    browser.start_notebook()
    token = hub.token_for("edsger")
    for name in ("main-w0", "main-w1"):
        hub.start_worker(token, "edsger", name)
    # A worker that is still starting must stop as well.
    late = hub.api(token, "POST", "/hub/api/users/edsger/servers/main-w2", {"role": "worker"})
    assert late.status_code == 202, late.text
    browser.stop_notebook()
    assert hub.api(token, "GET", "/hub/api/user").json()["servers"] == {}


def test_the_token_of_a_server_ends_with_it_although_the_hub_restarted(tmp_path: Path) -> None:
    with run_hub(tmp_path / "state") as hub:
        browser = hub.browser("linus")
        browser.start_notebook()
        environment = hub.environment_of("linus", "")
        token = environment["JUPYTERHUB_API_TOKEN"]
        hub.kill_and_restart()
        asyncio.run(use_streams(hub_broker(environment)))
        assert hub.api(token, "GET", "/hub/api/users/linus").status_code == 200
        browser.stop_notebook()
        assert hub.api(token, "GET", "/hub/api/users/linus").status_code == 403


async def use_streams(broker: Broker) -> None:
    """Use the NATS server of the hub with the credentials of a notebook server."""
    client = await broker.connect(error_cb=ignore)
    assert await client.jetstream().streams_info() == []
    await client.close()


def test_the_quota_of_workers(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(SMALL)
    with run_hub(tmp_path / "state", profiles) as small:
        token = small.token_for("carol")
        small.start_worker(token, "carol", "ring-w0")
        answer = small.api(token, "POST", "/hub/api/users/carol/servers/ring-w1", WORKER)
        assert answer.status_code == 400
        assert "allows 1 for each user" in answer.json()["message"]


def test_a_hub_for_others_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "hub" / "start.py"), "-f", str(ROOT / "hub" / "jupyterhub_config.py")]
    command += ["--url", "http://0.0.0.0:8999"]
    environment = {**os.environ, "FARANDOLE_STATE": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode != 0
    assert "Listen on 127.0.0.1" in result.stderr


def test_bad_profiles_stop_the_hub_with_the_key(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('[[profile]]\nname = "cpu"\ndescription = "CPU"\nranks = 0\n')
    with pytest.raises(HubProcessError, match="ranks must be"), run_hub(tmp_path / "state", profiles):
        pass


def test_a_taken_port_or_state_folder_is_named(hub: RunningHub, tmp_path: Path) -> None:
    with pytest.raises(HubProcessError, match="FARANDOLE_PORT"):
        HubProcess(Settings(port=hub.process.settings.port, state=tmp_path))
    with pytest.raises(HubProcessError, match="FARANDOLE_STATE"):
        HubProcess(hub.process.settings)
