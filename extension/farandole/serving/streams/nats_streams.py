"""The streams of JetStream that an endpoint reads from and appends to."""

from __future__ import annotations

import json
import re

import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StreamConfig, StreamInfo

from farandole.exceptions import StreamError
from farandole.streams.address import LABEL, StreamAddress

SOURCE_SECONDS = 7 * 24 * 3600.0
"""How long a stream of records that is created here keeps them. Older ones are removed."""
MOST_OUTPUTS = 1_000_000
"""The outputs that a stream which is created here keeps. The newest one always stays, and has the position."""


async def source_stream(client: Client, context: JetStreamContext, source: StreamAddress) -> StreamInfo:
    """Return the stream that has the records of a source, which is created if there is none.

    Raises StreamError if the records are in several streams, or if records are removed when they are read.
    """
    names = await _names(client, source.subject)
    if not names:
        config = StreamConfig(name=stream_name(source.subject), subjects=[source.subject], max_age=SOURCE_SECONDS)
        return await context.add_stream(config)
    found = await context.stream_info(names[0])
    if len(names) > 1 or not any(_includes(one, source.subject) for one in found.config.subjects or ()):
        raise StreamError(
            f"the records of `--from {source}` are not all in the stream {names[0]!r}; choose subjects of one stream"
        )
    _check_retention(found)
    return found


async def target_stream(context: JetStreamContext, target: StreamAddress) -> StreamInfo:
    """Return the stream for the outputs and dead letters, which is created if it does not exist.

    Raises StreamError if it lacks one of their subjects, or removes outputs after a time.
    """
    name, wanted = stream_name(target.base), {target.subject.replace(LABEL, "*"), target.dead_letters}
    try:
        found = await context.stream_info(name)
    except nats.js.errors.NotFoundError:
        return await context.add_stream(StreamConfig(name=name, subjects=sorted(wanted), max_msgs=MOST_OUTPUTS))
    subjects = found.config.subjects or []
    if missing := [one for one in sorted(wanted) if not any(_includes(subject, one) for subject in subjects)]:
        raise StreamError(
            f"the stream {name!r} exists and lacks the subject {missing[0]!r}; add it to the stream, or choose another "
            "`--to`"
        )
    _check_retention(found)
    if found.config.max_age:
        raise StreamError(
            f"the stream {name!r} removes outputs after a time, and with the last one the position; remove the limit "
            "max_age, or choose another `--to`"
        )
    return found


def stream_name(subject: str) -> str:
    """Return a name for the stream with a subject. Names have no dots, wildcards and spaces."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", subject).strip("_") or "records"


async def _names(client: Client, subject: str) -> list[str]:
    """Return the names of all streams with records of a subject. nats-py returns only the first one."""
    answer = await client.request("$JS.API.STREAM.NAMES", json.dumps({"subject": subject}).encode(), timeout=5)
    found = json.loads(answer.data)
    if "error" in found:
        nats.js.errors.APIError.from_error(found["error"])
    return list(found.get("streams") or ())


def _check_retention(stream: StreamInfo) -> None:
    if stream.config.retention not in {None, RetentionPolicy.LIMITS}:
        raise StreamError(
            f"the stream {stream.config.name!r} removes records when they are read (retention "
            f"{stream.config.retention!s}); create it again with the retention 'limits'"
        )


def _includes(pattern: str, subject: str) -> bool:
    """Return whether a pattern includes all subjects of another one."""
    words, others = pattern.split("."), subject.split(".")
    for place, word in enumerate(words):
        if word == ">":
            return len(others) > place
        if place >= len(others) or others[place] == ">" or (word != "*" and word != others[place]):
            return False
    return len(words) == len(others)
