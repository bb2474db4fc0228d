"""Merges the output of many ranks, and labels it with the ranks."""

from __future__ import annotations

import heapq
import itertools
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from farandole.exceptions import UsageError

HOLD_SECONDS = 1.0
"""How many seconds a line waits for the same line from other ranks before it is shown without them."""
LARGEST_RANK = 100_000
MOST_CHARACTERS = 1_000_000
"""How many characters of a cell's output are shown. Much more text would make a browser unresponsive."""


def label(ranks: Iterable[int]) -> str:
    """Return a label such as ``rank 3``, ``ranks 0-3`` or ``ranks 0, 2-3``."""
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
    """Return the ranks in a string such as ``0,2-3``, sorted and without duplicates.

    Raises:
        UsageError: the string is not a list of ranks.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise UsageError(f"{text!r} is not a list of ranks; write numbers and ranges, such as `0,2-3`")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"the range {part.strip()!r} in {text!r} is reversed; write `{last}-{first}`")
        if last > LARGEST_RANK:
            raise UsageError(f"{text!r} names rank {last}; no cluster has that many ranks")
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))


@dataclass(frozen=True, kw_only=True)
class Block:
    """Output that is the same on the given ranks.

    It is either the `text` of a stream (``stdout`` or ``stderr``) or a MIME `bundle` with rich output.
    """

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


@dataclass(eq=False)
class _Queue:
    """Output of one rank that has not been shown yet; `place` is the queue's position among all queues."""

    rank: int
    place: int
    items: deque[_Item] = field(default_factory=deque)
    keys: Counter[str] = field(default_factory=Counter)
    partial: dict[str, str] = field(default_factory=dict)


class _Waiting:
    """The queues of all ranks. An index by first item makes the cost of an item independent of the number of ranks."""

    def __init__(self) -> None:
        self.queues: dict[int, _Queue] = {}
        self.firsts: dict[str, set[_Queue]] = {}
        """For each key, the queues whose first item has that key."""
        self._holders: Counter[str] = Counter()

    def of(self, rank: int) -> _Queue:
        """Return the queue of a rank, and create it if necessary, because an elastic run can get more ranks."""
        if rank not in self.queues:
            self.queues[rank] = _Queue(rank, len(self.queues))
        return self.queues[rank]

    def put(self, queue: _Queue, item: _Item) -> None:
        """Add an item to a queue."""
        queue.items.append(item)
        queue.keys[item.key] += 1
        self._holders[item.key] += queue.keys[item.key] == 1
        if len(queue.items) == 1:
            self.firsts.setdefault(item.key, set()).add(queue)

    def take(self, key: str) -> list[tuple[_Queue, _Item]]:
        """Remove the first item from each queue where it has this key, and return queues and items in rank order."""
        queues = sorted(self.firsts.pop(key), key=lambda queue: queue.place)
        return [(queue, self._take_from(queue)) for queue in queues]

    def _take_from(self, queue: _Queue) -> _Item:
        item = queue.items.popleft()
        queue.keys[item.key] -= 1
        if not queue.keys[item.key]:
            del queue.keys[item.key]
            self._holders[item.key] -= 1
            if not self._holders[item.key]:
                del self._holders[item.key]
        if queue.items:
            self.firsts.setdefault(queue.items[0].key, set()).add(queue)
        return item

    def said_by_all(self) -> str | None:
        """Return the key of the first item if that key is the same for all ranks, or None."""
        if len(self.firsts) == 1:
            [(key, queues)] = self.firsts.items()
            return key if len(queues) == len(self.queues) else None
        return None

    def is_lonely(self, key: str) -> bool:
        """Return whether only one rank has items with this key."""
        return self._holders[key] == 1


_Entry: TypeAlias = tuple[tuple[float, ...], int, _Item, _Queue]


class _Turns:
    """Determines the order of the items that need not wait any longer, for one call of `Folder.take`.

    Lines that only one rank has printed come first, because lines that several ranks share may be queued behind them.
    """

    def __init__(self, waiting: _Waiting, ripe: Callable[[_Item], bool]) -> None:
        self._waiting = waiting
        self._ripe = ripe
        self._added = itertools.count()  # breaks ties, because items cannot be compared
        # An entry is stale if its item was shown for another reason, and so is no longer the first item of its queue.
        self._lonely: list[_Entry] = []
        self._oldest: list[_Entry] = []
        for queues in waiting.firsts.values():
            for queue in queues:
                self._add(queue)

    def take(self) -> list[tuple[_Queue, _Item]]:
        """Remove and return the items to show together next, or an empty list if all remaining items can still wait."""
        key = self._waiting.said_by_all() or self._next()
        if key is None:
            return []
        taken = self._waiting.take(key)
        for queue, _ in taken:
            if queue.items:
                self._add(queue)
        return taken

    def _add(self, queue: _Queue) -> None:
        item = queue.items[0]
        if self._ripe(item):
            heapq.heappush(self._oldest, ((item.time, queue.place), next(self._added), item, queue))
            if self._waiting.is_lonely(item.key):
                heapq.heappush(self._lonely, ((queue.place,), next(self._added), item, queue))

    def _next(self) -> str | None:
        for heap in (self._lonely, self._oldest):
            while heap:
                *_, item, queue = heap[0]
                if queue.items and queue.items[0] is item:
                    return item.key
                heapq.heappop(heap)
        return None


class Folder:
    """Merges equal output from many ranks into one block.

    - A line waits `HOLD_SECONDS` for the same line from the other ranks.
    - A line that all ranks have printed is shown once for all of them. Any other line is shown with the ranks that
      printed it.
    - Lines from one rank stay together instead of alternating with lines from other ranks.
    """

    def __init__(self, ranks: Sequence[int], *, limit: int = MOST_CHARACTERS) -> None:
        self._waiting = _Waiting()
        for rank in ranks:
            self._waiting.of(rank)
        self._left = limit
        self.dropped = 0

    def feed(self, rank: int, kind: str, content: dict[str, Any], now: float) -> None:
        """Add an output message from a rank that arrived at the time `now`, in seconds."""
        queue = self._waiting.of(rank)
        if kind == "stream":
            self._feed_text(queue, content["name"], content["text"], now)
        elif kind in {"display_data", "execute_result"}:
            self._feed_bundle(queue, content["data"], now)

    def take(self, now: float, *, flush: bool = False) -> list[Block]:
        """Return the blocks that are ready to be shown, or all blocks with `flush`."""
        if flush:
            self._end_partial_lines(now)
        turns = _Turns(self._waiting, lambda item: flush or now - item.time >= HOLD_SECONDS)
        shown = _Shown()
        while taken := turns.take():
            shown.add(tuple(queue.rank for queue, _ in taken), taken[0][1])
        return shown.blocks()

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
        # The page has no connection to a rank's kernel, which a widget would need, so the widget's text form is shown.
        bundle = {kind: value for kind, value in data.items() if kind != "application/vnd.jupyter.widget-view+json"}
        key = json.dumps(bundle, sort_keys=True)
        if len(key) > self._left:
            self.dropped += len(key)
            return
        self._left -= len(key)
        self._waiting.put(queue, _Item(key, "", "", bundle, now))

    def _put_line(self, queue: _Queue, stream: str, line: str, now: float) -> None:
        # Progress bars rewind a line with a carriage return. Only the text after the last carriage return is shown.
        line = line.rstrip("\r\n").rpartition("\r")[2] + "\n"
        self._waiting.put(queue, _Item(f"{stream}:{line}", stream, line, None, now))

    def _end_partial_lines(self, now: float) -> None:
        for queue in self._waiting.queues.values():
            for stream, rest in queue.partial.items():
                if rest:
                    self._put_line(queue, stream, rest, now)
            queue.partial.clear()


class _Shown:
    """Collects blocks, and joins consecutive text from the same ranks."""

    def __init__(self) -> None:
        self._blocks: list[tuple[tuple[int, ...], _Item, list[str]]] = []

    def add(self, ranks: tuple[int, ...], item: _Item) -> None:
        """Add an item that these ranks share."""
        if self._blocks and item.bundle is None:
            last_ranks, last, texts = self._blocks[-1]
            if last.bundle is None and (last_ranks, last.stream) == (ranks, item.stream):
                texts.append(item.text)
                return
        self._blocks.append((ranks, item, [item.text]))

    def blocks(self) -> list[Block]:
        """Return the blocks in the order in which they were added."""
        return [
            Block(ranks=ranks, stream=item.stream, text="".join(texts), bundle=item.bundle)
            for ranks, item, texts in self._blocks
        ]
