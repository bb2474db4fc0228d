"""The operators' page, the notices of stopped servers, and the page of runs on a hub in pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docker.remote_operators import check_runs_page, check_stop

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

USER = "olympia"


def test_a_user_sees_runs_and_templates_and_who_stopped_the_server_and_why(site: Site) -> None:
    site.browser(USER).start_notebook("little-scratch")
    check_runs_page(site, USER)
    check_stop(site, USER, profile="little-scratch", memory="1G")
    site.wait_gone(USER, "")
