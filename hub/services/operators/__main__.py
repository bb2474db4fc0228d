"""`python -m hub.services.operators ADDRESS`: serve the operators' page at this address, as a service of the hub."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from farandole.sizes import size_text
from farandole.times import duration_text
from jinja2 import Environment, FileSystemLoader
from jupyterhub.services.auth import HubOAuth
from tornado.ioloop import IOLoop
from tornado.log import enable_pretty_logging
from tornado.web import Application

from hub.services.operators.client import HubClient
from hub.services.operators.containers import ContainerMeasures
from hub.services.operators.handlers import routes
from hub.services.operators.office import Office
from spawner_config.operators.notices import Notices
from spawner_config.operators.site import Site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

    from hub.services.operators.office import Measuring

PAGE = Path(__file__).with_name("page")
LARGEST_BODY = 64 << 10


def template() -> Template:
    """Return the template of the page, which escapes all values."""
    environment = Environment(loader=FileSystemLoader(PAGE), autoescape=True)
    environment.filters |= {"size": size_text, "duration": duration_text}
    return environment.get_template("operators.html")


def make_office(environ: Mapping[str, str]) -> Office:
    """Return what the pages share, as the hub's environment variables describe it."""
    site = Site.from_environment(environ)
    return Office(
        client=HubClient(url=environ["JUPYTERHUB_API_URL"], token=environ["JUPYTERHUB_API_TOKEN"]),
        site=site,
        template=template(),
        origin=environ.get("JUPYTERHUB_HOST", ""),
        notices=Notices(site.state),
        measuring=_measuring(site),
    )


def _measuring(site: Site) -> Measuring | None:
    if site.engine:
        return ContainerMeasures(site.engine, site.containers)
    if not site.local:
        return None
    # The hub's image lacks psutil, which only the measurements of local processes need.
    from hub.services.operators.measures import LocalMeasures

    return LocalMeasures(site.state)


def main(bind: str, environ: Mapping[str, str]) -> None:
    """Serve the pages until the hub ends this process."""
    enable_pretty_logging()
    office = make_office(environ)
    if office.site.secure:
        HubOAuth.instance(cookie_options={"secure": True})
    rules = routes(environ["JUPYTERHUB_SERVICE_PREFIX"], office)
    # The key of the cookies is new with each start. Browsers then log in again without a question.
    application = Application(rules, cookie_secret=os.urandom(32))
    port = urlsplit(environ["JUPYTERHUB_SERVICE_URL"]).port
    assert port is not None
    application.listen(port, bind, xheaders=True, max_body_size=LARGEST_BODY)
    IOLoop.current().start()


if __name__ == "__main__":
    main(sys.argv[1], os.environ)
