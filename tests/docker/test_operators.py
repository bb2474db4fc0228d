"""The operators' page, the notices of stopped servers, and the page of runs on a hub in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docker.remote_operators import check_runs_page, check_stop

if TYPE_CHECKING:
    from tests.docker.stack import Stack

USER = "olympia"


def test_a_user_sees_runs_and_templates_and_who_stopped_the_server_and_why(stack: Stack) -> None:
    stack.browser(USER).start_notebook("small")
    check_runs_page(stack, USER)
    check_stop(stack, USER, profile="small", memory="700M", measured=True)
