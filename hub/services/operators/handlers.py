"""The service's pages: who uses what, the stop of servers, messages to users, and metrics."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jupyterhub.services.auth import HubAuth, HubOAuthCallbackHandler, HubOAuthenticated
from prometheus_client import CONTENT_TYPE_LATEST
from tornado.httputil import url_concat
from tornado.log import app_log
from tornado.web import HTTPError, RequestHandler, authenticated

from hub.services.operators.client import HubRefusedError
from hub.services.operators.metrics import UsageCollector, exposition
from spawner_config.operators.backup_record import BackupRecord
from spawner_config.operators.notices import MOST_CHARACTERS, Notice
from spawner_config.snapshots.record import MirrorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hub.services.operators.office import Office

CSP = "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; form-action 'self'; {1}"
MOST_PROBLEMS = 5
"""The number of problems of the hub's mirror that the page shows. The hub's log has all of them."""
NO_FRAMES = "frame-ancestors 'none'; base-uri 'none'"


class OperatorHandler(HubOAuthenticated, RequestHandler):
    """Base class of the pages for operators, which no other page may show or send."""

    def initialize(self, office: Office) -> None:
        """Store what all pages share."""
        self.office = office

    def set_default_headers(self) -> None:
        """Forbid everything that the page does not need; tornado calls this also before it sends an error."""
        self.nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Security-Policy", CSP.format(self.nonce, NO_FRAMES))
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    def check_xsrf_cookie(self) -> None:
        """Refuse requests from pages of other origins, also from those that can set cookies for the hub's host."""
        origin = self.request.headers.get("Origin")
        if self.office.origin and origin is not None and origin != self.office.origin:
            raise HTTPError(HTTPStatus.FORBIDDEN, "This page accepts no request from %s.", origin)
        super().check_xsrf_cookie()

    def get_current_user(self) -> Any:
        """Return the hub's model of the user, or None without a login."""
        with _hub_needed():
            return super().get_current_user()

    @property
    def operator(self) -> str:
        """The name of the logged-in operator."""
        return str(self.current_user["name"])

    def text(self) -> str:
        """Return the operator's text for the user; raises HTTPError 400 without one."""
        text = " ".join(self.get_body_argument("text").split())
        if not 0 < len(text) <= MOST_CHARACTERS:
            raise HTTPError(HTTPStatus.BAD_REQUEST, reason=f"Write a text of at most {MOST_CHARACTERS} characters.")
        return text

    def back(self, outcome: str) -> None:
        """Show the page again, with what became of the action."""
        app_log.info("%s: %s", self.operator, outcome)
        key = self.office.outcomes.keep(self.operator, outcome)
        self.redirect(url_concat(self.hub_auth.base_url, {"outcome": key}), status=HTTPStatus.SEE_OTHER)

    async def change_notices(self, change: Callable[[], None]) -> str:
        """Change the notices on the disk. Return an empty text, or why it failed; a full disk must stop no action."""
        try:
            # A thread waits for the disk and for the hub, which changes notices as well.
            await asyncio.to_thread(change)
        except OSError as exc:
            app_log.error("Notices cannot be written: %s", exc)
            return f"The text for the user is not kept ({exc.strerror}). Check the free space for the hub's state."
        return ""


@contextmanager
def _hub_needed() -> Iterator[None]:
    """Answer 503 with a sentence while the hub restarts."""
    try:
        yield
    except (HubRefusedError, HTTPError) as exc:
        if isinstance(exc, HTTPError) and exc.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        reason = "The hub does not answer. It may be restarting: try again in a minute."
        raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, "%s", exc, reason=reason) from exc


class UsageHandler(OperatorHandler):
    """``GET /services/operators/`` shows who uses what."""

    @authenticated
    async def get(self) -> None:
        """Show users and servers."""
        with _hub_needed():
            users, gpus = await asyncio.gather(self.office.users(), self.office.client.gpus())
        # The record of an earlier mirror stays on the disk.
        record = MirrorRecord.read(self.office.site.state)
        problems = record.problems if record and record.place == self.office.site.mirror else []
        page = self.office.template.render(
            users=users,
            gpus=gpus,
            limits=self.office.site.limits,
            outcome=self.office.outcomes.take(self.operator, self.get_query_argument("outcome", "")),
            danger=self.office.site.danger,
            backup=BackupRecord.read(self.office.site.state),
            mirror=problems[:MOST_PROBLEMS],
            operator=self.operator,
            base=self.hub_auth.base_url,
            hub=self.hub_auth.hub_prefix,
            xsrf=self.xsrf_token.decode(),
            nonce=self.nonce,
            most=MOST_CHARACTERS,
        )
        self.finish(page)


class StopHandler(OperatorHandler):
    """``POST /services/operators/stop`` stops a server of a user, or all of them without the field ``server``."""

    @authenticated
    async def post(self) -> None:
        """Stop servers, and leave a notice that tells the user who did so and why."""
        name, text = self.get_body_argument("user", strip=False), self.text()
        asked = self.get_body_arguments("server", strip=False)
        with _hub_needed():
            user = next((user for user in await self.office.users(active=True) if user.name == name), None)
        running = tuple(each.name for each in user.servers if not asked or each.name in asked) if user else ()
        if not running:
            self.back(f"{name!r} has no such running server.")
            return
        # The notice comes first, so that no server is stopped without one if this process ends.
        notice = Notice(by=self.operator, at=datetime.now(UTC), text=text, servers=running)
        unkept = await self.change_notices(lambda: self.office.notices.add(name, notice))
        refusals = await asyncio.gather(*(self._stop(name, server) for server in running))
        stopped = tuple(server for server, refusal in zip(running, refusals, strict=True) if refusal is None)
        if stopped != running and not unkept:
            unkept = await self.change_notices(lambda: self.office.notices.correct(name, notice, stopped))
        self.back(" ".join([_outcome(name, stopped, [refusal for refusal in refusals if refusal]), unkept]).strip())

    async def _stop(self, user: str, server: str) -> str | None:
        """Stop a server; return None, or the hub's reason why it does not stop."""
        try:
            await self.office.client.stop(user, server)
        except HubRefusedError as exc:
            return f"{server or 'notebook'}: {exc}"
        return None


def _outcome(user: str, stopped: tuple[str, ...], refusals: list[str]) -> str:
    names = ", ".join(server or "notebook" for server in stopped)
    done = [f"Stopped servers of {user}: {names}."] if stopped else []
    return " ".join([*done, *([f"Not stopped: {'; '.join(refusals)}"] if refusals else [])])


class MessageHandler(OperatorHandler):
    """``POST /services/operators/message`` leaves a message for a user on the hub's pages and in JupyterLab."""

    @authenticated
    async def post(self) -> None:
        """Keep the message."""
        name, text = self.get_body_argument("user", strip=False), self.text()
        with _hub_needed():
            known = any(user.name == name for user in await self.office.users())
        if not known:
            self.back(f"There is no user {name!r}.")
            return
        notice = Notice(by=self.operator, at=datetime.now(UTC), text=text)
        unkept = await self.change_notices(lambda: self.office.notices.add(name, notice))
        self.back(unkept or f"Left a message for {name}.")


class MetricsHandler(OperatorHandler):
    """``GET /services/operators/metrics`` returns the metrics for tokens with the scope ``read:metrics``."""

    hub_scopes = frozenset({"read:metrics"})

    def initialize(self, office: Office, tokens: HubAuth) -> None:
        """Accept tokens only: a login in a browser gives no access to the metrics, and is not asked for."""
        super().initialize(office)
        self.hub_auth = tokens

    @authenticated
    async def get(self) -> None:
        """Send the metrics; answer 403 without such a token."""
        with _hub_needed():
            usage = await self.office.usage()
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        collector = UsageCollector(usage.users, usage.gpus, self.office.site.limits, total=usage.total)
        self.finish(exposition(collector))


def routes(prefix: str, office: Office) -> list[tuple[Any, ...]]:
    """Return the rules of the service's application."""
    shared = {"office": office}
    return [
        (prefix, UsageHandler, shared),
        (f"{prefix}stop", StopHandler, shared),
        (f"{prefix}message", MessageHandler, shared),
        (f"{prefix}metrics", MetricsHandler, {**shared, "tokens": HubAuth()}),
        (f"{prefix}oauth_callback", HubOAuthCallbackHandler),
    ]
