"""Streams of Redis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from farandole.exceptions import StreamError
from farandole.serving.streams.log import (
    MOST_BYTES,
    MOST_RECORDS,
    Batch,
    ConflictError,
    Log,
    Output,
    Record,
    UnavailableError,
)
from farandole.streams.address import DEAD_LETTER, StreamAddress

BODY = "data"
"""The field of an entry that is the record. The other fields are its headers."""
RESERVED = "farandole-"
"""The beginning of the names of headers that only outputs have."""
INPUT = "farandole-input"
MODEL = "farandole-model"
ERROR = "farandole-error"
FIRST_COUNT = 16
"""Entries that are read together at first. Redis accepts entries of any size, and all of them are in memory."""
TOO_MANY_BYTES = 32 * 2**20
"""The next entry after a batch of more bytes is read alone."""
MOST_FIELDS = 1_000
"""The headers of a record that its output also gets. A script of Redis can append at most 4,000 fields."""
MOST_OUTPUTS = 1_000_000
"""The outputs that a stream which this module creates keeps, approximately."""
WAIT_MILLISECONDS = 5_000
ANSWER_SECONDS = 10.0
BEGINNING = "0-0"
APPEND = """#!lua
local state = KEYS[1]
if (redis.call('HGET', state, 'position') or '') ~= ARGV[1] then return 0 end
local absent = {}
for place = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[place]).ok
  if kind ~= 'stream' and kind ~= 'none' then return KEYS[place] end
  if kind == 'none' then table.insert(absent, KEYS[place]) end
end
redis.call('HSET', state, 'position', ARGV[1])
for _, key in ipairs(absent) do redis.call('HSET', state, 'created ' .. key, 1) end
local own = {}
for place = 2, #KEYS do own[place] = redis.call('HEXISTS', state, 'created ' .. KEYS[place]) == 1 end
local at = 3
while at < #ARGV do
  local place, last = tonumber(ARGV[at]), at + 3 + tonumber(ARGV[at + 3])
  if own[place] then
    redis.call('XADD', KEYS[place], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, at + 4, last))
  else
    redis.call('XADD', KEYS[place], '*', unpack(ARGV, at + 4, last))
  end
  redis.call('HSET', state, 'position', ARGV[at + 1], 'passed', ARGV[at + 2])
  at = last + 1
end
return 1
"""
"""Appends outputs and advances the position if the position is the expected one.

Redis runs a script as a whole, but keeps what it has written before an error:

- The first line makes Redis refuse the script before it begins if it cannot write now, for example without memory.
- All types are checked before the first write. The script returns the name of a key that is not a stream.
- The first write is one of the position, which fails if the user may not write it.
- The position follows each output. If an output is refused after others, they are not appended again.

KEYS: the position, then each stream of outputs. ARGV: the expected position, the length of streams that this script has
created, then for each output the place of its stream in KEYS, the position of its record, the number of entries that
have been added to the source up to there or an empty string, the number of the following names and values, and these.

Source: https://redis.io/docs/latest/develop/programmability/lua-api/
"""


class RedisLog(Log):
    """Reads a stream, and appends the outputs with a script that also advances the position, in one step.

    The position is in a hash of its own, whose name has those of the source and the target. The hash also has a field
    for each stream that the script has created. Only these are trimmed.
    """

    def __init__(self, url: str, login: str, source: StreamAddress, target: StreamAddress) -> None:
        """Store the addresses. ``login`` is ``USER:PASSWORD``, a password alone, or empty.

        The user ends at the first colon, so a password with a colon needs its user. This is ``default`` if the server
        has no other users.
        """
        self._url = url
        self._source = source
        self._target = target
        self._dead = f"{DEAD_LETTER}.{target.base}"
        # Names of streams have no spaces, so no other pair of streams has this name.
        self._state = f"farandole: {source.subject} -> {target.subject}"
        self._count = FIRST_COUNT
        user, password = _login(login)
        self._client = Redis.from_url(
            url,
            username=user or None,
            password=password or None,
            socket_connect_timeout=ANSWER_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            # If an answer is lost, the outputs may be appended. A second try would be taken for another consumer's.
            retry=Retry(NoBackoff(), 0),
        )

    async def open(self) -> None:
        """Connect to the server."""
        with _named(self._url):
            await self._client.ping()
        self._script = self._client.register_script(APPEND)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def position(self) -> str:
        """Return the position of the last record that has an output, or an empty string."""
        with _named(self._url):
            found: Any = await self._client.hget(self._state, "position")
        return found.decode() if found else ""

    async def seek(self) -> str:
        """Continue behind the last record that has an output, and return its position."""
        self._appended = self._read = await self.position()
        with _named(self._url):
            passed: Any = await self._client.hget(self._state, "passed")
        self._passed = int(passed) if passed else None
        await self._check_source()
        return self._appended

    async def read(self) -> Batch:
        """Return the next records, in the order of the stream, or none if none has come for some seconds."""
        with _named(self._url):
            found: Any = await self._client.xread(
                {self._source.subject: self._read or BEGINNING}, count=self._count, block=WAIT_MILLISECONDS
            )
        if not found:
            await self._check_source()
            return Batch(records=[], waiting=0)
        records = [_record(place.decode(), fields) for place, fields in found[0][1]]
        self._count = _next_count(self._count, found[0][1])
        self._read = records[-1].position
        return Batch(records=records, waiting=await self._waiting(records))

    async def append(self, outputs: Sequence[Output]) -> None:
        """Append outputs, and advance the position to the last one of their records."""
        outputs = [_with_few_fields(one) for one in outputs]
        streams = [self._dead if one.error else self._target.of_label(one.label) for one in outputs]
        keys = [self._state, *dict.fromkeys(streams)]
        places = {key: place for place, key in enumerate(keys, start=1)}
        values = chain.from_iterable(
            [places[stream], one.record.position, passed, *_entry(one)]
            for stream, one, passed in zip(streams, outputs, self._passed_by(len(outputs)), strict=True)
        )
        with _named(self._url):
            done: Any = await self._script(keys=keys, args=[self._appended, MOST_OUTPUTS, *values])
        if isinstance(done, bytes):
            raise self._not_a_stream(done.decode(), "--to")
        if not done:
            raise ConflictError
        self._appended = outputs[-1].record.position

    def _passed_by(self, count: int) -> Sequence[int | str]:
        """Return the entries added up to each of the last records, or empty strings if this is not known."""
        if self._passed is None:
            return [""] * count
        return range(self._passed - count + 1, self._passed + 1)

    async def _check_source(self) -> None:
        """Raise StreamError if the source is not a stream, or ends before the position."""
        with _named(self._url):
            kind: Any = await self._client.type(self._source.subject)
            if kind == b"none":
                return
            if kind != b"stream":
                raise self._not_a_stream(self._source.subject, "--from")
            last = (await self._client.xinfo_stream(self._source.subject))["last-generated-id"].decode()
        if _order(self._read or BEGINNING) > _order(last):
            raise StreamError(
                f"the last scored record of {self._source} is {self._read}, but the stream ends before it, at {last}. "
                "It was deleted and filled again, or restored. To score it from its beginning, delete the key "
                f"{self._state!r}"
            )

    def _not_a_stream(self, key: str, option: str) -> StreamError:
        """Return the error for a key of another type."""
        return StreamError(
            f"the key {key!r} at {self._url} is not a stream; rename or delete it, or choose another `{option}`"
        )

    async def _waiting(self, records: Sequence[Record]) -> int | None:
        """Return the number of entries behind the records, or None if it is not known.

        Redis counts the entries that were ever added, and those that are there. The number is exact if the records are
        the first or the last ones of the stream. Otherwise it is too large if later entries were deleted.
        """
        with _named(self._url):
            source: Any = await self._client.xinfo_stream(self._source.subject)
        waiting: int
        if source["recorded-first-entry-id"].decode() == records[0].position:
            waiting = source["length"] - len(records)
        elif source["last-generated-id"].decode() == records[-1].position:
            waiting = 0
        elif self._passed is None:
            return None
        else:
            waiting = min(source["length"], source["entries-added"] - self._passed - len(records))
        self._passed = source["entries-added"] - max(0, waiting)
        return max(0, waiting)


def _login(content: str) -> tuple[str, str]:
    """Return the user, which may be empty, and the password."""
    user, colon, password = content.rstrip("\r\n").partition(":")
    return (user, password) if colon else ("", user)


def _order(position: str) -> tuple[int, ...]:
    return tuple(map(int, position.split("-")))


def _next_count(count: int, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> int:
    """Return how many entries to read after a batch that ``count`` limited."""
    size = sum(len(text) for _, fields in entries for pair in fields.items() for text in pair)
    if size > TOO_MANY_BYTES:
        return 1
    # A batch with fewer entries than it may have says nothing of the next one.
    return min(2 * count, MOST_RECORDS) if size < MOST_BYTES and len(entries) == count else count


def _record(position: str, fields: Mapping[bytes, bytes]) -> Record:
    headers = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    headers.pop(BODY, None)
    return Record(position=position, body=fields.get(BODY.encode(), b""), headers=headers)


def _with_few_fields(output: Output) -> Output:
    """Return an output that a script can append: one with too many headers becomes a dead letter without them."""
    record, count = output.record, len(output.record.headers)
    if count <= MOST_FIELDS:
        return output
    error = output.error or f"the record has {count} fields besides {BODY!r}, and may have at most {MOST_FIELDS}"
    return replace(output, record=replace(record, headers={}), body=record.body, error=error)


def _entry(output: Output) -> list[Any]:
    """Return the number of names and values of an output's entry, and these."""
    others = {name: value for name, value in output.record.headers.items() if not name.lower().startswith(RESERVED)}
    own = {INPUT: output.record.position, MODEL: output.model, **({ERROR: output.error} if output.error else {})}
    entry = {BODY: output.body, **others, **own}
    return [2 * len(entry), *chain.from_iterable(entry.items())]


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Convert errors of Redis to those of a log."""
    try:
        yield
    except (AuthenticationError, NoPermissionError) as exc:
        raise StreamError(
            f"{url} does not allow this: {exc}; write USER:PASSWORD to a file, and name it with `--credentials`"
        ) from exc
    except ResponseError as exc:
        raise UnavailableError(f"{url} refuses: {exc}") from exc
    except (RedisError, OSError) as exc:
        raise UnavailableError(f"{url} is not available: {exc}") from exc
