"""Creates the errors for failed requests to workers.

The messages are for users. The request and the response are in exception notes, which logs and plain tracebacks show.
"""

from __future__ import annotations

from http.client import responses

import aiohttp

from farandole.exceptions import WorkerStartError
from farandole.reading import parse_json

NOTE_CHARACTERS = 300
"""How many characters of an answer a note contains. A proxy may answer with a whole page."""
MESSAGE_CHARACTERS = 500


def silent_worker(worker: str, note: str, *, status: int | None = None) -> WorkerStartError:
    """Return the error for a worker that does not answer, or in whose place the hub or its proxy answers."""
    error = WorkerStartError(
        f"worker {worker} does not answer; it may be starting or stopping. Try again, or see `%cluster status`.",
        status=status,
    )
    error.add_note(note)
    return error


async def refusal(worker: str, request: str, answer: aiohttp.ClientResponse) -> WorkerStartError:
    """Return the error for a request that a worker refused. Its message is the worker's own if there is one."""
    text, status = await answer.text(), answer.status
    note = f"{request}: {status} {text[:NOTE_CHARACTERS]}"
    if status in {401, 403}:
        error = WorkerStartError(
            f"worker {worker} refused access; it may be starting or stopping. Try again; if the error remains, "
            "restart your notebook server, or on a machine of your own, make a new token on the hub's Token page and "
            "run `farandole login`.",
            status=status,
        )
    elif status == 500:
        error = WorkerStartError(
            f"worker {worker} could not process a request. Try again; if the error remains, its log in the Farandole "
            "panel contains the cause.",
            status=status,
        )
    elif said := _said(status, text):
        error = WorkerStartError(f"worker {worker}: {said}", status=status)
    else:
        return silent_worker(worker, note, status=status)
    error.add_note(note)
    return error


def _said(status: int, text: str) -> str:
    """Return the message in a worker's answer, or an empty string if the answer has none that helps a user.

    The hub answers 424 in place of a worker that is not running, and its message names an address.
    """
    if status == 424 or not 400 <= status < 500:
        return ""
    try:
        message = parse_json(text, "the answer").get("message")
    except ValueError:
        return ""
    return message[:MESSAGE_CHARACTERS] if isinstance(message, str) and message != responses.get(status) else ""
