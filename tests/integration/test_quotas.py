"""A user who fills the home on a hub whose homes are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from farandole.quotas.home import LIMIT as LIMIT_VARIABLE

from hub.process import wait_until
from spawner_config.quotas.records import FOLDER
from tests.clients.kernel import RemoteKernel
from tests.full_homes import LIMIT, FullHome
from tests.hub import LIMITED_USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

OTHER = "grace"
SECONDS = 60.0
HOME = "/hub/api/farandole/users/{}/home"


@pytest.fixture(scope="module")
def kernel(hub: RunningHub) -> Iterator[RemoteKernel]:
    browser = hub.browser(LIMITED_USER)
    assert "<p>Your home may take 200 MiB.</p>" in browser.spawn_page()
    address = browser.start_notebook()
    with RemoteKernel(address, browser.make_token(), "quota.ipynb") as kernel:
        yield kernel
    browser.stop_notebook()


def test_a_user_who_fills_the_home_is_told_before_and_after_and_loses_nothing(
    hub: RunningHub, kernel: RemoteKernel
) -> None:
    home = FullHome(kernel, enforced=False)
    home.check_before()
    wait_until(lambda: (hub.state / FOLDER / f"{LIMITED_USER}.json").exists(), SECONDS)
    assert "MiB of 200 MiB used" in hub.browser(LIMITED_USER).spawn_page()
    home.check_warning()
    home.check_full()
    panel = hub.api(hub.browser(LIMITED_USER).make_token(), "GET", f"/user/{LIMITED_USER}/farandole/panel/state")
    shown = panel.json()["resources"]["home"]
    assert (shown["limit"], shown["free"]) == (LIMIT, 0)
    assert shown["warning"].startswith("Your home is full (")
    # Others log in and start servers, and their homes have no limit.
    assert "Your home" not in hub.browser(OTHER).spawn_page()
    hub.start_notebook(OTHER)
    assert LIMIT_VARIABLE not in hub.environment_of(OTHER, "")
    hub.browser(OTHER).stop_notebook()
    home.check_after()


def test_only_a_users_own_server_tells_the_use(hub: RunningHub, kernel: RemoteKernel) -> None:
    own = hub.environment_of(LIMITED_USER, "")["JUPYTERHUB_API_TOKEN"]
    use = {"used": 5, "limit": 7}
    assert hub.api(own, "POST", HOME.format(LIMITED_USER), use).status_code == 204
    assert hub.api(own, "POST", HOME.format(LIMITED_USER), {"used": "5"}).status_code == 400
    assert hub.api(own, "POST", HOME.format(OTHER), use).status_code in {403, 404}
    assert hub.api(hub.token_for(OTHER), "POST", HOME.format(LIMITED_USER), use).status_code in {403, 404}
    assert hub.api("", "POST", HOME.format(LIMITED_USER), use).status_code == 403
