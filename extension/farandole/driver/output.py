"""Pure functions and a small state machine that merge and label what many ranks print."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.exceptions import UsageError

HOLD_SECONDS = 1.0
"""How long a line waits for the same line from the other ranks before it is shown without them."""
LARGEST_RANK = 100_000
LIMIT_BYTES = 1_000_000
"""How much text of one cell is shown; a browser chokes on much more."""


def label(ranks: Iterable[int]) -> str:
    """Return ranks in words: ``rank 3``, ``ranks 0-3``, ``ranks 0, 2-3``."""
    numbers = sorted(set(ranks))
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    text = ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
    return f"rank{'' if len(numbers) == 1 else 's'} {text}"


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks that a text like ``0,2-3`` names, in order and each once.

    Raises:
        UsageError: it names none.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise UsageError(f"{text!r} names no ranks; write numbers and spans, such as `0,2-3`")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"the span {part.strip()!r} in {text!r} runs backwards; write `{last}-{first}`")
        if last > LARGEST_RANK:
            raise UsageError(f"{text!r} names rank {last}; no cluster has so many")
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))


@dataclass(frozen=True, kw_only=True)
class Block:
    """Output that the given ranks share: `text` of a stream (``stdout`` or ``stderr``), or a rich mime `bundle`."""

    ranks: tuple[int, ...]
    stream: str = ""
    text: str = ""
    bundle: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Item:
    key: str
    stream: str
    text: str
    bundle: dict[str, Any] | None
    time: float


@dataclass
class _Queue:
    items: deque[_Item] = field(default_factory=deque)
    keys: Counter[str] = field(default_factory=Counter)
    partial: dict[str, str] = field(default_factory=dict)

    def put(self, item: _Item) -> None:
        self.items.append(item)
        self.keys[item.key] += 1

    def take(self) -> _Item:
        item = self.items.popleft()
        self.keys[item.key] -= 1
        return item


class Folder:
    """Folds like output of many ranks into one block.

    Lines wait a moment for their like from the other ranks. What all have said is shown once for all; what only some
    have said is shown for those, and in runs of one rank rather than line by line in turns.
    """

    def __init__(self, ranks: Sequence[int], *, limit: int = LIMIT_BYTES) -> None:
        self._queues = {rank: _Queue() for rank in ranks}
        self._left = limit
        self.dropped = 0

    def feed(self, rank: int, kind: str, content: dict[str, Any], now: float) -> None:
        """Take an output message of a rank; `now` in seconds."""
        queue = self._queues.setdefault(rank, _Queue())  # an elastic run may get more ranks
        if kind == "stream":
            self._feed_text(queue, content["name"], content["text"], now)
        elif kind in {"display_data", "execute_result"}:
            self._feed_bundle(queue, content["data"], now)

    def take(self, now: float, *, flush: bool = False) -> list[Block]:
        """Return the blocks that are ready to be shown, all that is left where `flush`."""
        if flush:
            self._end_partial_lines(now)
        blocks: list[Block] = []
        while (ranks := self._next(now, flush=flush)) is not None:
            _append(blocks, self._emit(ranks))
        return blocks

    def _feed_text(self, queue: _Queue, stream: str, text: str, now: float) -> None:
        if len(text) > self._left:
            self.dropped += len(text) - self._left
            text = text[: self._left]
        self._left -= len(text)
        *lines, rest = (queue.partial.get(stream, "") + text).split("\n")
        queue.partial[stream] = rest
        for line in lines:
            self._put_line(queue, stream, line + "\n", now)

    def _feed_bundle(self, queue: _Queue, data: dict[str, Any], now: float) -> None:
        # A widget lives in the rank's kernel, out of this page's reach; its text says what it is.
        bundle = {kind: value for kind, value in data.items() if kind != "application/vnd.jupyter.widget-view+json"}
        key = json.dumps(bundle, sort_keys=True)
        if len(key) > self._left:
            self.dropped += len(key)
            return
        self._left -= len(key)
        queue.put(_Item(key, "", "", bundle, now))

    def _put_line(self, queue: _Queue, stream: str, line: str, now: float) -> None:
        # A carriage return rewinds the line, as progress bars do: what it overwrites is gone.
        line = line.rstrip("\r\n").rpartition("\r")[2] + "\n"
        queue.put(_Item(f"{stream}:{line}", stream, line, None, now))

    def _end_partial_lines(self, now: float) -> None:
        for queue in self._queues.values():
            for stream, rest in queue.partial.items():
                if rest:
                    self._put_line(queue, stream, rest, now)
            queue.partial.clear()

    def _next(self, now: float, *, flush: bool) -> tuple[int, ...] | None:
        """Return the ranks whose first items are to be shown together now, None when all may wait."""
        heads = {rank: queue.items[0] for rank, queue in self._queues.items() if queue.items}
        if not heads:
            return None
        if len(heads) == len(self._queues) and len({item.key for item in heads.values()}) == 1:
            return tuple(heads)
        # Whoever's line nobody else has is shown first, so that the others' lines get the chance to meet.
        ripe = [rank for rank, item in heads.items() if flush or now - item.time >= HOLD_SECONDS]
        if not ripe:
            return None
        lonely = [rank for rank in ripe if not self._elsewhere(rank, heads)]
        key = heads[lonely[0] if lonely else min(ripe, key=lambda rank: heads[rank].time)].key
        return tuple(rank for rank, item in heads.items() if item.key == key)

    def _elsewhere(self, rank: int, heads: dict[int, _Item]) -> bool:
        key = heads[rank].key
        return any(queue.keys[key] for other, queue in self._queues.items() if other != rank)

    def _emit(self, ranks: tuple[int, ...]) -> Block:
        items = [self._queues[rank].take() for rank in ranks]
        return Block(ranks=ranks, stream=items[0].stream, text=items[0].text, bundle=items[0].bundle)


def _append(blocks: list[Block], block: Block) -> None:
    """Add a block, joined to the last one where both are text of the same ranks."""
    last = blocks[-1] if blocks else None
    joins = last is not None and last.bundle is None and block.bundle is None
    if last is not None and joins and (last.ranks, last.stream) == (block.ranks, block.stream):
        blocks[-1] = Block(ranks=block.ranks, stream=block.stream, text=last.text + block.text)
    else:
        blocks.append(block)
