"""Tests that errors of workers are sentences for users, and that notes keep the request and the answer."""

import aiohttp
import pytest
from aiohttp import web
from farandole.driver.workers.worker import Worker
from farandole.exceptions import WorkerStartError

from tests.unit.driver.workers.test_source import served

PAGE = "<html><body>502 at http://proxy:8000/</body></html>"
AWAY = "worker main-w0 does not answer; it may be starting or stopping. Try again, or see `%cluster status`."
REFUSED = "worker main-w0 refused access; it may be starting or stopping."
FAILED = "worker main-w0 could not process a request. Try again; if the error remains, its log"


async def error_of(request, response):
    """Return the error of a request to a worker whose server sends this response to all requests."""

    async def answer(_request):
        return response

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with served(application) as url, aiohttp.ClientSession() as session:
        with pytest.raises(WorkerStartError) as caught:
            await request(Worker(name="main-w0", url=f"{url}/", token="secret", session=session))
    return caught.value


def page(status):
    return web.Response(status=status, text=PAGE, content_type="text/html")


def said(status, message):
    return web.json_response({"message": message}, status=status)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (page(302), AWAY),
        (page(404), AWAY),
        (page(503), AWAY),
        (said(424, "JupyterHub server no longer running. Restart the server at http://proxy:8000/hub/spawn"), AWAY),
        (said(404, "Not Found"), AWAY),
        (said(404, None), AWAY),
        (web.json_response(["odd"], status=400), AWAY),
        (page(403), REFUSED),
        (said(403, "Forbidden"), REFUSED),
        (page(500), FAILED),
        (said(500, "Failed to connect to Hub API at 'http://hub:8081/hub/api'"), FAILED),
        (said(400, "this worker cannot listen at 'x'"), "worker main-w0: this worker cannot listen at 'x'"),
    ],
)
async def test_a_refusal_is_a_sentence_and_a_note_keeps_the_answer(response, message):
    text = response.text
    error = await error_of(Worker.info, response)
    assert str(error).startswith(message)
    assert not [word for word in ("http:", "GET", "farandole/", "<") if word in str(error)]
    assert (error.status, error.__notes__) == (response.status, [f"GET farandole/worker: {response.status} {text}"])


async def test_a_note_keeps_only_the_beginning_of_a_page():
    error = await error_of(Worker.info, web.Response(status=503, text="x" * 10_000, content_type="text/html"))
    assert error.__notes__ == [f"GET farandole/worker: 503 {'x' * 300}"]


async def test_another_servers_page_in_place_of_a_worker_is_no_answer():
    error = await error_of(Worker.look, page(200))
    assert (str(error), error.__notes__) == (AWAY, ["GET farandole/look: the answer is not JSON"])


async def test_a_refused_journal_has_the_workers_own_reason():
    error = await error_of(lambda worker: anext(worker.follow("r", "k", 0)), said(404, "there is no journal of run r"))
    assert str(error) == "worker main-w0: there is no journal of run r"
    assert error.__notes__[0].startswith("GET farandole/records/r/k: 404")


async def test_a_worker_that_cannot_be_reached_is_named_without_its_address(unused_tcp_port):
    async with aiohttp.ClientSession() as session:
        worker = Worker(name="main-w0", url=f"http://127.0.0.1:{unused_tcp_port}/", token="secret", session=session)
        with pytest.raises(WorkerStartError) as caught:
            await worker.info()
    assert str(caught.value) == AWAY
    [note] = caught.value.__notes__
    assert note.startswith(f"GET farandole/worker: Cannot connect to host 127.0.0.1:{unused_tcp_port}")
