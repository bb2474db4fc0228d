"""A hub in containers or pods, which the tests use over HTTP."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hub.process import local_session, wait_until
from tests.clients.browser import Browser
from tests.clients.hosts import url_of
from tests.clients.kernel import RemoteKernel

if TYPE_CHECKING:
    from collections.abc import Iterator

ADMIN = "root-of-all"
START_SECONDS = 120


class RemoteHub:
    """The hub at ``url``, where anybody can sign up. ``passwords`` maps the names of known users to their passwords."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.passwords = {ADMIN: secrets.token_urlsafe(18)}

    def wait_ready(self) -> None:
        """Wait until the login page answers."""
        wait_until(self._answers, START_SECONDS)

    def _answers(self) -> bool:
        try:
            return local_session().get(f"{self.url}/hub/login", timeout=5).ok
        except OSError:
            return False

    def sign_up(self, user: str) -> None:
        """Create an account with the sign-up form."""
        session = local_session()
        session.get(f"{self.url}/hub/signup", timeout=30).raise_for_status()
        password = self.passwords[user] = secrets.token_urlsafe(18)
        form = {
            "username": user,
            "signup_password": password,
            "signup_password_confirmation": password,
            "_xsrf": session.cookies["_xsrf"],
        }
        answer = session.post(f"{self.url}/hub/signup", data=form, timeout=30)
        assert answer.ok, answer.text

    def browser(self, user: str) -> Browser:
        """Return a browser in which the user is logged in, after creating the account if necessary."""
        return Browser(self.url, user, self.password_of(user))

    def password_of(self, user: str) -> str:
        """Return the user's password, after creating the account if necessary."""
        if user not in self.passwords:
            self.sign_up(user)
        return self.passwords[user]

    @contextmanager
    def kernel(self, user: str, profile: str = "cpu", path: str = "scratch.ipynb") -> Iterator[RemoteKernel]:
        """Run a kernel of a notebook on the user's notebook server, after starting the server if necessary."""
        browser = self.browser(user)
        address = url_of(self.url, f"/user/{user}") if browser.has_notebook() else browser.start_notebook(profile)
        with RemoteKernel(address, browser.make_token(), path) as kernel:
            yield kernel
