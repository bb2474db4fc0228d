"""What an operator, and the user of a stopped server, see on a hub in containers or pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.server.panel.routes.templates import NAMES
from farandole.sizes import size_text

from hub.process import local_session, wait_until
from spawner_config.operators.site import memory_bytes
from tests.clients.hosts import url_of
from tests.clients.operators import act, page_of, row_of
from tests.docker.hub_api import STOP_SECONDS
from tests.docker.remote_hub import ADMIN

if TYPE_CHECKING:
    from tests.docker.remote_hub import RemoteHub

REASON = "The machine restarts."


def check_stop(hub: RemoteHub, user: str, *, profile: str, memory: str, measured: bool = False) -> None:
    """Check that an operator sees a server with its limits and stops it, and that its user reads who did so and why.

    ``measured`` says whether the hub knows the memory in use.
    """
    own, operators = hub.browser(user), hub.browser(ADMIN)
    assert own.has_notebook()
    assert page_of(hub, own).status_code == 403
    answer = page_of(hub, operators)
    assert answer.status_code == 200
    assert "notebook servers and" in answer.text
    row = row_of(answer.text, user)
    limit = size_text(memory_bytes(memory))
    for text in ("notebook", "running", profile, f"MiB of {limit}" if measured else f"limit {limit}"):
        assert text in row, row
    answer = act(hub, operators, "stop", user=user, text=REASON)
    assert f"Stopped servers of {user}: notebook." in answer.text
    wait_until(lambda: not own.has_notebook(), STOP_SECONDS)
    for path in ("/hub/home", f"/hub/spawn/{user}"):
        text = own._session.get(f"{hub.url}{path}", timeout=30).text
        assert f"{ADMIN} stopped your notebook server. Reason: {REASON}" in text
    assert REASON not in operators._session.get(f"{hub.url}/hub/home", timeout=30).text


def check_runs_page(hub: RemoteHub, user: str) -> None:
    """Check that the routes of the page of runs and of the templates answer a user through the proxy."""
    token = hub.browser(user).make_token()

    def ask(method: str, path: str, **options: Any) -> Any:
        address = url_of(hub.url, f"/user/{user}/farandole/panel/{path}")
        headers = {"Authorization": f"token {token}"}
        answer = local_session().request(method, address, headers=headers, timeout=60, **options)
        assert answer.ok, (path, answer.status_code, answer.text)
        return answer.json()

    table = ask("GET", "table?sort=seconds&descending=1")
    assert (table["runs"], table["offset"]) == ([], 0)
    assert [each["name"] for each in ask("GET", "templates")["templates"]] == list(NAMES)
    made = [ask("POST", "templates/plain-ddp", json={"folder": ""})["path"] for _ in range(2)]
    assert made == ["plain-ddp.ipynb", "plain-ddp-1.ipynb"]
