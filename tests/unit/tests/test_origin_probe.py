"""Tests that an attempt of the origin probe which could not run is reported. Node runs the page's script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.origin_probe import hostile_files

NODE = Path(sys.executable).with_name("node")
BROWSER = """
const element = {appendChild: (child) => child, submit: () => console.error("submitted")};
globalThis.location = {pathname: "/user/eve/evil/page", origin: "http://eve.hub.test"};
globalThis.document = {body: element, createElement: () => ({...element})};
globalThis.window = {open: () => ({close() {}})};
globalThis.setTimeout = (done, milliseconds) => milliseconds < 10000 && done();
globalThis.fetch = async () => ({ok: STATUS === 200, text: async () => TOKEN});
"""
"""A browser whose timers end at once, and which receives the same answer to all requests."""
PROBE = """
probe({hub: "http://hub.test", eve: "eve"}, ["login_as_eve"]).then((stolen) => console.log(JSON.stringify(stolen)));
"""


def login_as_eve(status: int, token: str) -> tuple[list[str], str]:
    """Return what the attempt reports if the user's server gives it this answer, and what it wrote to stderr."""
    script = hostile_files()["page.html"].partition("<script>")[2].partition("</script>")[0]
    browser = BROWSER.replace("STATUS", str(status)).replace("TOKEN", json.dumps(token))
    done = subprocess.run(
        [NODE, "-e", browser + script + PROBE], capture_output=True, text=True, timeout=60, check=True
    )
    stolen: list[str] = json.loads(done.stdout)["login_as_eve"]
    return stolen, done.stderr.strip()


@pytest.mark.parametrize(("status", "token"), [(200, ""), (500, "Internal Server Error")])
def test_a_login_that_got_no_token_is_no_success(status: int, token: str) -> None:
    reported, stderr = login_as_eve(status, token)
    assert reported == ["The attempt failed: Error: the hub gave no token for its login form"]
    assert stderr == ""


def test_a_login_with_a_token_is_submitted() -> None:
    assert login_as_eve(200, "0123456789abcdef") == ([], "submitted")
