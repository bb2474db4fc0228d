"""A body that is too large is refused after its rest was read, because the hub's proxy delays earlier answers."""

import pytest
from farandole.serving.bodies import MOST_BYTES, MOST_SKIPPED_BYTES, BodyLimit
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse

PART = 2**20


async def app(scope, receive, send):
    await PlainTextResponse(str(len(await Request(scope, receive).body())))(scope, receive, send)


async def answered(size, *, announced):
    """Send a body. Return the status, and how many bytes were read before the answer."""
    read, status = 0, None

    async def receive():
        nonlocal read
        assert read < size, "a server would wait for more"
        read += PART
        return {"type": "http.request", "body": bytes(PART), "more_body": read < size}

    async def send(message):
        nonlocal status
        status = message.get("status", status)

    sent = [(b"content-length", str(size).encode())] if announced else []
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": sent}
    await BodyLimit(ExceptionMiddleware(app))(scope, receive, send)
    return status, read


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_is_read_to_its_end_before_it_is_refused(announced):
    for size, status in ((MOST_BYTES, 200), (MOST_BYTES + PART, 413), (50 * PART, 413)):
        assert await answered(size, announced=announced) == (status, size)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_very_long_body_is_not_read_to_its_end(announced):
    status, read = await answered(2 * (MOST_BYTES + MOST_SKIPPED_BYTES), announced=announced)
    assert status == 413
    assert read <= MOST_BYTES + MOST_SKIPPED_BYTES + PART
