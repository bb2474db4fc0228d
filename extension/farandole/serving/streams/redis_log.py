"""Streams of Redis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from farandole.exceptions import StreamError
from farandole.serving.streams.log import Batch, ConflictError, Log, Output, Record, UnavailableError
from farandole.streams.address import DEAD_LETTER, StreamAddress

BODY = "data"
"""The field of an entry that is the record. The other fields are its headers."""
INPUT = "farandole-input"
MODEL = "farandole-model"
ERROR = "farandole-error"
MOST_ENTRIES = 64
"""Entries that are read together. Redis accepts entries of any size, and all of them are in memory at the same time."""
MOST_OUTPUTS = 1_000_000
"""The outputs that a stream of outputs keeps, approximately."""
WAIT_MILLISECONDS = 5_000
ANSWER_SECONDS = 10.0
BEGINNING = "0-0"
APPEND = """
if (redis.call('HGET', KEYS[1], 'position') or ARGV[1]) ~= ARGV[2] then return 0 end
local at = 5
for place = 2, #KEYS do
  local last = at + tonumber(ARGV[at])
  redis.call('XADD', KEYS[place], 'MAXLEN', '~', ARGV[4], '*', unpack(ARGV, at + 1, last))
  at = last + 1
end
redis.call('HSET', KEYS[1], 'position', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'records', #KEYS - 1)
return 1
"""
"""Appends outputs and advances the position, if the position is the expected one. Redis runs a script as a whole.

KEYS: the position, then the stream of each output. ARGV: the beginning of a stream, the expected position, the new one,
the length of the streams, then for each output the number of the following names and values, and these.

Source: https://redis.io/docs/latest/develop/programmability/eval-intro/
"""


class RedisLog(Log):
    """Reads a stream, and appends the outputs with a script that also advances the position, in one step.

    The position is in a hash of its own, whose name has those of the source and the target.
    """

    def __init__(self, url: str, login: str, source: StreamAddress, target: StreamAddress) -> None:
        """Store the addresses. ``login`` is ``USER:PASSWORD``, a password alone, or empty."""
        self._url = url
        self._source = source
        self._target = target
        self._dead = f"{DEAD_LETTER}.{target.base}"
        self._state = f"farandole:{source.subject}:{target.subject}"
        user, _, password = login.strip().rpartition(":")
        self._client = Redis.from_url(
            url,
            username=user or None,
            password=password or None,
            socket_connect_timeout=ANSWER_SECONDS,
            socket_timeout=ANSWER_SECONDS,
        )

    async def open(self) -> None:
        """Connect to the server."""
        with _named(self._url):
            await self._client.ping()
        self._script = self._client.register_script(APPEND)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def seek(self) -> str:
        """Find the last record that has an output, and continue behind it."""
        with _named(self._url):
            found: Any = await self._client.hget(self._state, "position")
        self._appended = self._read = found.decode() if found else BEGINNING
        return self._appended

    async def read(self) -> Batch:
        """Return the next records, in the order of the stream."""
        found: Any = None
        with _named(self._url):
            while not found:
                found = await self._client.xread(
                    {self._source.subject: self._read}, count=MOST_ENTRIES, block=WAIT_MILLISECONDS
                )
            waiting = await self._waiting()
        records = [_record(place.decode(), fields) for place, fields in found[0][1]]
        self._read = records[-1].position
        return Batch(records=records, waiting=None if waiting is None else max(0, waiting - len(records)))

    async def append(self, outputs: Sequence[Output]) -> None:
        """Append outputs, and advance the position to the last one of their records."""
        keys = [self._state, *(self._dead if one.error else self._target.of_label(one.label) for one in outputs)]
        last = outputs[-1].record.position
        values = [value for one in outputs for value in _entry(one)]
        with _named(self._url):
            done = await self._script(keys=keys, args=[BEGINNING, self._appended, last, MOST_OUTPUTS, *values])
        if not done:
            raise ConflictError
        self._appended = last

    async def _waiting(self) -> int | None:
        """Return the number of records without an output, or None if records were removed before they were scored."""
        added = (await self._client.xinfo_stream(self._source.subject))["entries-added"]
        waiting = added - int(await self._client.hget(self._state, "records") or 0)
        return waiting if waiting >= 0 else None


def _record(position: str, fields: Mapping[bytes, bytes]) -> Record:
    headers = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    headers.pop(BODY, None)
    return Record(position=position, body=fields.get(BODY.encode(), b""), headers=headers)


def _entry(output: Output) -> list[Any]:
    """Return the number of names and values of an output's entry, and these."""
    own = {**output.record.headers, INPUT: output.record.position, MODEL: output.model}
    entry = {BODY: output.body, **own, **({ERROR: output.error} if output.error else {})}
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
