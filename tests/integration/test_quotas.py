"""A user who fills the home on a hub whose homes are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from farandole.quotas.home import LIMIT as LIMIT_VARIABLE

from hub.process import wait_until
from spawner_config.quotas.records import HomeRecords
from tests.clients.kernel import RemoteKernel
from tests.full_homes import LIMIT, FullHome
from tests.hub import LIMITED_USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

OTHER = "walter"
SECONDS = 60.0


@pytest.fixture(scope="module")
def kernel(hub: RunningHub) -> Iterator[RemoteKernel]:
    """A kernel of the user's notebook server, whose start page shows the limit."""
    browser = hub.browser(LIMITED_USER)
    assert "<p>Your home may take 200 MiB.</p>" in browser.spawn_page()
    with RemoteKernel(browser.start_notebook(), browser.make_token(), "quota.ipynb") as kernel:
        yield kernel
    browser.stop_notebook()
    assert "MiB of 200 MiB used" in browser.spawn_page()


def test_a_user_who_fills_the_home_is_told_before_and_after_and_loses_nothing(
    hub: RunningHub, kernel: RemoteKernel
) -> None:
    home = FullHome(kernel, enforced=False)
    home.check_before()
    home.check_warning()
    home.check_full()
    token = hub.browser(LIMITED_USER).make_token()
    shown = hub.api(token, "GET", f"/user/{LIMITED_USER}/farandole/panel/state").json()["resources"]["home"]
    assert (shown["limit"], shown["free"]) == (LIMIT, 0)
    assert shown["warning"].startswith("Your home is full (")
    # Others log in and start servers, and their homes have no limit.
    other = hub.browser(OTHER)
    assert "Your home" not in other.spawn_page()
    other.start_notebook()
    assert LIMIT_VARIABLE not in hub.environment_of(OTHER, "")
    other.stop_notebook()
    home.check_after()


def test_only_a_users_own_server_tells_the_hub_the_use(hub: RunningHub, kernel: RemoteKernel) -> None:
    records = HomeRecords(hub.state)
    wait_until(lambda: records.read(LIMITED_USER) is not None, SECONDS)
    own = hub.environment_of(LIMITED_USER, "")["JUPYTERHUB_API_TOKEN"]

    def status(token: str, user: str, body: object) -> int:
        return hub.api(token, "POST", f"/hub/api/farandole/users/{user}/home", body).status_code

    use = {"used": LIMIT // 4, "limit": LIMIT}
    assert status(own, LIMITED_USER, use) == 204
    assert status(own, LIMITED_USER, {"used": "5"}) == 400
    assert status(own, OTHER, use) in {403, 404}
    assert status(hub.token_for(OTHER), LIMITED_USER, use) in {403, 404}
    assert status("", LIMITED_USER, use) == 403
    found = records.read(LIMITED_USER)
    assert found is not None
    assert found.used == LIMIT // 4
    assert records.read(OTHER) is None
