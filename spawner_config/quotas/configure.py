"""Tells servers how large the home of their user may be, and shows on the page for starting a server what is used."""

from __future__ import annotations

import os
import time
from html import escape
from typing import TYPE_CHECKING, Any

from farandole.quotas.home import LIMIT, WARN_SHARE
from farandole.sizes import share_text, size_text
from farandole.times import duration_text
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError

from spawner_config.quotas.records import HomeRecord, HomeRecords
from spawner_config.quotas.sizes import CLAIM_BYTES, VARIABLE, HomeSizes, parse_sizes
from spawner_config.roles import is_endpoint, is_notebook

if TYPE_CHECKING:
    from collections.abc import Callable

    from spawner_config.settings import Settings

PATH = r"/api/farandole/users/([^/]+)/home"


class HomeHandler(APIHandler):  # type: ignore[misc]
    """``POST /hub/api/farandole/users/NAME/home`` stores how much of a user's home is used, for the user's own page."""

    def initialize(self, records: HomeRecords) -> None:
        """Take the records of all users."""
        self._records = records

    @needs_scope("users:activity")  # type: ignore[untyped-decorator]
    async def post(self, user_name: str) -> None:
        """Store the record; answer 403 unless the user's own server sends it, and 400 if it is invalid."""
        user = self.find_user(user_name)
        if user is None or user is not self.current_user:
            raise HTTPError(403, "Only a user's own servers can tell the use of the user's home.")
        record = HomeRecord.parsed(self.get_json_body())
        if record is None:
            raise HTTPError(400, 'The body must be {"used": BYTES, "limit": BYTES}.')
        try:
            self._records.write(user.name, record)
        except OSError as exc:
            raise HTTPError(507, f"The hub cannot store it ({exc.strerror}).") from exc
        self.set_status(204)


def configure_quotas(c: Any, settings: Settings, *, claims: bool) -> None:
    """Configure the limits of FARANDOLE_HOME_SIZE; raises `SettingsError`.

    - The deployment must be configured before, because this adds to its functions.
    - ``claims`` says whether homes are claims on Kubernetes, which always have a size.
    """
    sizes = parse_sizes(os.environ.get(VARIABLE) or "", CLAIM_BYTES if claims else None)
    if not sizes:
        return
    records = HomeRecords(settings.state)
    c.Spawner.pre_spawn_hook = with_limit(c.Spawner.get("pre_spawn_hook"), sizes)
    c.Spawner.options_form = with_use(c.Spawner.options_form, sizes, records)
    rule = (PATH, HomeHandler, {"records": records})
    c.JupyterHub.extra_handlers = [*(c.JupyterHub.get("extra_handlers") or []), rule]


def with_limit(before: Any, sizes: HomeSizes) -> Callable[[Any], Any]:
    """Return a ``pre_spawn_hook`` that calls the hook ``before``, and then tells servers the limit of their home.

    Endpoints do not need it: they start no runs.
    """

    async def hook(spawner: Any) -> None:
        if before:
            await maybe_future(before(spawner))
        size = sizes.of_spawner(spawner)
        if size is not None and not is_endpoint(spawner.name):
            spawner.environment |= {LIMIT: str(size)}

    return hook


def with_use(form: Callable[[Any], str], sizes: HomeSizes, records: HomeRecords) -> Callable[[Any], str]:
    """Return a function for ``options_form`` that adds the use of the home to the form of notebook servers."""

    def options_form(spawner: Any) -> str:
        size = sizes.of_spawner(spawner)
        if size is None or not is_notebook(spawner.name):
            return form(spawner)
        return f"{form(spawner)}\n{describe_use(records.read(spawner.user.name), size, time.time())}"

    return options_form


def describe_use(record: HomeRecord | None, size: int, now: float) -> str:
    """Describe the use of a home in HTML, at the time ``now``; ``size`` is the size that the setting gives it."""
    if record is None:
        return f"<p>Your home may take {size_text(size)}.</p>"
    limit = min(record.limit, size)
    used = f"{share_text(record.used, limit)} used, {size_text(max(0, limit - record.used))} free"
    said = f"Your home: {used}, {duration_text(now - record.time)} ago."
    if record.used < WARN_SHARE * limit:
        return f"<p>{escape(said)}</p>"
    advice = "New runs are refused when it is full. Start the server, and delete files that you no longer need."
    return f'<p class="alert alert-warning">{escape(said)} {advice}</p>'
