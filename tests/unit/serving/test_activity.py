"""An endpoint reports to the hub when it last answered a request, once for each request."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest
from farandole.serving.activity import report_activity
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

FIRST, SECOND = 1_800_000_000.0, 1_800_000_060.5


class Reports(RequestHandler):
    """Records reports, or answers with the statuses in ``refusals`` first."""

    def initialize(self, reports, refusals):
        self.reports, self.refusals = reports, refusals

    def post(self):
        self.reports.append((self.request.headers["Authorization"], json.loads(self.request.body)))
        self.set_status(self.refusals.pop(0) if self.refusals else 200)


@asynccontextmanager
async def reporting(last_request, refusals=()):
    """Report to a hub, and yield the reports that it has received, and its server."""
    reports = []
    listener, port = bind_unused_port()
    server = HTTPServer(Application([("/activity", Reports, {"reports": reports, "refusals": [*refusals]})]))
    server.add_socket(listener)
    environment = {
        "JUPYTERHUB_ACTIVITY_URL": f"http://127.0.0.1:{port}/activity",
        "JUPYTERHUB_ACTIVITY_INTERVAL": "0.01",
        "JUPYTERHUB_API_TOKEN": "own",
        "JUPYTERHUB_SERVER_NAME": "serve-iris",
    }
    task = asyncio.create_task(report_activity(environment, last_request))
    try:
        yield reports, server
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        server.stop()


class Requests:
    """Returns the time of the last request, and counts how often it was asked for it."""

    def __init__(self):
        self.last = FIRST
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.last


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def report_of(time):
    return ("token own", {"servers": {"serve-iris": {"last_activity": time}}, "last_activity": time})


async def test_each_last_request_is_reported_once():
    requests = Requests()
    async with reporting(requests) as (reports, _):
        await until(lambda: requests.asked > 3)
        requests.last = SECOND
        await until(lambda: len(reports) == 2)
        asked = requests.asked
        await until(lambda: requests.asked > asked + 2)
    assert reports == [report_of("2027-01-15T08:00:00+00:00"), report_of("2027-01-15T08:01:00.500000+00:00")]


@pytest.mark.parametrize("status", [403, 503])
async def test_a_report_that_the_hub_refuses_is_repeated(status, caplog):
    async with reporting(Requests(), [status]) as (reports, _):
        await until(lambda: len(reports) == 2)
    assert reports[0] == reports[1]
    assert "The hub did not accept the report of the last request: HTTP " in caplog.text


async def test_reports_continue_when_the_hub_is_down(caplog):
    requests = Requests()
    async with reporting(requests) as (reports, server):
        await until(lambda: reports)
        server.stop()
        requests.last = SECOND
        await until(lambda: "The hub did not accept the report" in caplog.text)
        asked = requests.asked
        await until(lambda: requests.asked > asked)


async def test_without_a_hub_nothing_is_reported():
    requests = Requests()
    await asyncio.wait_for(report_activity({}, requests), 5)
    assert requests.asked == 0
