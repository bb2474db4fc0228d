"""What an operator, and the user of a stopped server, see on a hub in containers or pods."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from farandole.server.panel.routes.templates import NAMES
from farandole.sizes import size_text

from hub.process import local_session, wait_until
from spawner_config.operators.site import memory_bytes
from tests.clients.hosts import url_of
from tests.clients.operators import act, page_of, row_of
from tests.compat.places import FIXTURES, REPORTS
from tests.docker.hub_api import STOP_SECONDS
from tests.docker.remote_hub import ADMIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.docker.remote_hub import RemoteHub

REASON = "The machine restarts."
RUNS = PurePosixPath("farandole/runs")
RUNS_SECONDS = 30


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
    headers = {"Authorization": f"token {own.make_token()}"}
    notices = local_session().get(f"{hub.url}/hub/api/farandole/notices", headers=headers, timeout=30).json()
    assert (notices[0]["by"], notices[0]["text"], notices[0]["servers"]) == (ADMIN, REASON, [""])
    assert f"{memory[:-1]} {memory[-1]}iB memory" in text, "the spawn page shows no memory limit"
    assert REASON not in operators._session.get(f"{hub.url}/hub/home", timeout=30).text


def check_runs_page(hub: RemoteHub, user: str) -> None:
    """Check that the page of runs shows a run of 3ff8f67 with its values, series and log, and offers the templates.

    All requests go through the proxy to the user's server.
    """
    token = hub.browser(user).make_token()

    def ask(method: str, path: str, **options: Any) -> Any:
        address = url_of(hub.url, f"/user/{user}/{path}")
        headers = {"Authorization": f"token {token}"}
        answer = local_session().request(method, address, headers=headers, timeout=60, **options)
        assert answer.ok, (path, answer.status_code, answer.text)
        return answer.json()

    panel = "farandole/panel"
    table = ask("GET", f"{panel}/table?sort=seconds&descending=1")
    assert (table["runs"], table["offset"]) == ([], 0)
    _upload_run(ask)

    def row() -> dict[str, Any]:
        found = ask("GET", f"{panel}/table?sort=seconds&descending=1")
        if not (found["complete"] and found["runs"]):
            return {}
        [run] = found["runs"]
        return {**run, **dict(zip(found["columns"], run["values"], strict=True))}

    wait_until(lambda: bool(row()), RUNS_SECONDS)
    assert (row()["id"], row()["name"], row()["status"], row()["size"]) == (REPORTS, "reports", "finished", 2)
    assert row()["series.loss.last"] == pytest.approx(1 / 6, rel=1e-3)
    assert row()["bytes"] > 0
    [loss] = [each for each in ask("GET", f"{panel}/runs/{REPORTS}/series")["series"] if each["name"] == "loss"]
    assert loss["mean"]
    assert "step 2 on rank 1" in ask("GET", f"{panel}/runs/{REPORTS}/logs/1")["text"]

    assert [each["name"] for each in ask("GET", f"{panel}/templates")["templates"]] == list(NAMES)
    made = [ask("POST", f"{panel}/templates/plain-ddp", json={"folder": ""})["path"] for _ in range(2)]
    assert made == ["plain-ddp.ipynb", "plain-ddp-1.ipynb"]


def _upload_run(ask: Callable[..., Any]) -> None:
    """Write a run into the user's home through the server."""
    source = FIXTURES / "runs" / REPORTS
    folders = [PurePosixPath("farandole"), RUNS, RUNS / REPORTS]
    files = sorted(path for path in source.rglob("*") if path.is_file())
    folders += sorted({RUNS / REPORTS / path.relative_to(source).parent for path in files} - set(folders))
    for folder in folders:
        ask("PUT", f"api/contents/{folder}", json={"type": "directory"})
    # The run appears with its run.json, which is written last.
    for path in sorted(files, key=lambda path: path.name == "run.json"):
        model = {"type": "file", "format": "text", "content": path.read_text(encoding="utf-8")}
        ask("PUT", f"api/contents/{RUNS / REPORTS / path.relative_to(source)}", json=model)
