"""Merges the output of many ranks, and labels it with the ranks."""

from __future__ import annotations

import heapq
import itertools
import json
import math
import re
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from farandole.driver.displays import Change, Displays, Screen
from farandole.exceptions import UsageError
from farandole.protocol import AREA_TYPE
from farandole.runs.terminal import TerminalLines

HOLD_SECONDS = 1.0
"""How many seconds a line waits for the same line from other ranks before it is shown without them."""
LARGEST_RANK = 100_000
MOST_CHARACTERS = 1_000_000
"""How many characters of a cell's output are shown. Much more text would make a browser unresponsive."""
MOST_LIVE = 8
"""How many groups of ranks with the same progress bars are shown while the bars are moving."""


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

    - It is either the `text` of a stream (``stdout`` or ``stderr``) or a MIME `bundle` with rich output.
    - If `display` is not empty, the bundle replaces the bundle of the previous block with the same `display`.
    - If `final` is true, this is the last state of the display.
    """

    ranks: tuple[int, ...]
    stream: str = ""
    text: str = ""
    bundle: dict[str, Any] | None = None
    display: str = ""
    final: bool = False


@dataclass(frozen=True)
class _Item:
    key: str
    stream: str
    text: str
    bundle: dict[str, Any] | None
    time: float
    display: str = ""


@dataclass(eq=False)
class _Queue:
    """Output of one rank that has not been shown yet; `place` is the queue's position among all queues.

    `screens` holds the rank's screens by the name of their area. The name of the cell's own area is empty.
    """

    rank: int
    place: int
    most: int
    items: deque[_Item] = field(default_factory=deque)
    keys: Counter[str] = field(default_factory=Counter)
    streams: dict[str, TerminalLines] = field(default_factory=dict)
    area: str = ""
    screens: dict[str, Screen] = field(default_factory=dict)
    silent: bool = True

    def stream(self, name: str) -> TerminalLines:
        """Return the lines of a stream that are not complete."""
        return self.streams.setdefault(name, TerminalLines(most=self.most))


class _Waiting:
    """The queues of all ranks. An index by first item makes the cost of an item independent of the number of ranks."""

    def __init__(self, most: int) -> None:
        self.queues: dict[int, _Queue] = {}
        self._most = most
        self.firsts: dict[str, set[_Queue]] = {}
        """For each key, the queues whose first item has that key."""
        self._holders: Counter[str] = Counter()

    def of(self, rank: int) -> _Queue:
        """Return the queue of a rank, and create it if necessary, because an elastic run can get more ranks."""
        if rank not in self.queues:
            self.queues[rank] = _Queue(rank, len(self.queues), self._most)
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

    def drop(self, queue: _Queue) -> Iterator[_Item]:
        """Remove and yield all items of a queue."""
        while queue.items:
            key = queue.items[0].key
            self.firsts[key].discard(queue)
            if not self.firsts[key]:
                del self.firsts[key]
            yield self._take_from(queue)

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
    - Progress bars are shown together in one display while they move. Only their last frames become lines.
    - Displays that a rank updates, and output that a rank clears to replace it, are shown separately for each rank.
    - Output beyond ``limit`` characters is dropped. Output that replaces other output does not count again.
    """

    def __init__(self, ranks: Sequence[int], *, limit: int = MOST_CHARACTERS) -> None:
        self._name = f"farandole-{uuid.uuid4().hex[:12]}"
        self._waiting = _Waiting(limit)
        for rank in ranks:
            self._waiting.of(rank)
        self._displays = Displays()
        self._live = ""
        self._left = limit
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many characters were dropped."""
        streams = (stream for queue in self._waiting.queues.values() for stream in queue.streams.values())
        return self._dropped + sum(stream.dropped for stream in streams)

    def feed(self, rank: int, kind: str, content: dict[str, Any], now: float) -> None:
        """Add an output message from a rank that arrived at the time `now`, in seconds."""
        queue = self._waiting.of(rank)
        if kind == "stream":
            self._feed_text(queue, content["name"], content["text"], now)
        elif kind == "clear_output":
            self._clear(queue, wait=bool(content.get("wait")), now=now)
        elif AREA_TYPE in content["data"]:
            queue.area = content["data"][AREA_TYPE]
        else:
            name, bundle = content.get("transient", {}).get("display_id", ""), _without_widget(content["data"])
            display = f"farandole-{rank}-{name}" if name else ""
            if kind != "update_display_data":
                self._feed_bundle(queue, bundle, display, now)
            elif not self._displays.is_cleared(display):
                # A display of an earlier cell is updated there, and shown here too.
                self._change(queue, [(display, bundle)], now)
        queue.silent = queue.silent and kind == "clear_output"

    def take(self, now: float, *, flush: bool = False) -> list[Block]:
        """Return the blocks that are ready to be shown, or all blocks with `flush`."""
        for queue in self._waiting.queues.values():
            for name, stream in queue.streams.items():
                self._put_lines(queue, name, stream.flush() if flush else stream.settle(now), now)
        turns = _Turns(self._waiting, lambda item: flush or now - item.time >= HOLD_SECONDS)
        shown = _Shown(self._displays)
        while taken := turns.take():
            shown.add(tuple(queue.rank for queue, _ in taken), taken[0][1])
        return [*shown.blocks(), *self._updates(now, flush=flush)]

    def _updates(self, now: float, *, flush: bool) -> Iterator[Block]:
        """Yield the displays that have changed, and the progress bars that are moving."""
        if not (self._displays.is_due(now) or flush):
            return
        for key, rank, bundle in self._displays.take():
            yield Block(ranks=(rank,), bundle=bundle, display=key, final=flush)
        live = "\n".join(self._live_lines())
        if live != self._live:
            self._live = live
            yield Block(ranks=(), bundle={"text/plain": live}, display=f"{self._name}-live", final=flush)

    def _live_lines(self) -> list[str]:
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank, queue in sorted(self._waiting.queues.items()):
            if rows := tuple(row for stream in queue.streams.values() for row in stream.live):
                groups.setdefault(rows, []).append(rank)
        names = {} if len(self._waiting.queues) == 1 else {rows: f"{label(ranks)}  " for rows, ranks in groups.items()}
        lines = [names.get(rows, "") + row for rows in list(groups)[:MOST_LIVE] for row in rows]
        hidden = sum(len(ranks) for ranks in list(groups.values())[MOST_LIVE:])
        return [*lines, f"... and {hidden} more ranks"] if hidden else lines

    def _feed_text(self, queue: _Queue, stream: str, text: str, now: float) -> None:
        if (screen := self._screen(queue)) is not None:
            self._change(queue, screen.add_text(text), now)
        else:
            lines = queue.stream(stream).add(text, now)
            if lines:
                self._settle_all_but(queue, stream, now)
            self._put_lines(queue, stream, lines, now)

    def _settle_all_but(self, queue: _Queue, stream: str, now: float) -> None:
        """Complete the progress bars that ended before other output of the rank, to keep the order."""
        for name, other in queue.streams.items():
            if name != stream:
                self._put_lines(queue, name, other.settle(math.inf), now)

    def _feed_bundle(self, queue: _Queue, bundle: dict[str, Any], display: str, now: float) -> None:
        self._settle_all_but(queue, "", now)
        screen = self._screen(queue)
        if screen is not None:
            changes = screen.add_display(display, bundle) if display else screen.add_bundle(bundle)
            self._change(queue, changes, now)
        elif display:
            self._change(queue, [(display, bundle)], now)
        else:
            key = json.dumps(bundle, sort_keys=True)
            if self._charge(len(key)):
                self._waiting.put(queue, _Item(key, "", "", bundle, now))

    def _screen(self, queue: _Queue) -> Screen | None:
        """Return the screen of the rank's current area. The cell's own area has one if the rank has cleared it."""
        if queue.area and queue.area not in queue.screens:
            queue.screens[queue.area] = Screen(f"{self._name}-{queue.rank}-{queue.area}")
        return queue.screens.get(queue.area)

    def _clear(self, queue: _Queue, *, wait: bool, now: float) -> None:
        if self._screen(queue) is None:
            if queue.silent and not wait:
                return  # Many cells clear their output once at the beginning. From then on, their output is as usual.
            for item in self._waiting.drop(queue):
                if item.display:
                    self._displays.drop(item.display)
            queue.streams.clear()
            queue.screens[""] = Screen(f"{self._name}-{queue.rank}", self._displays.keys_of(queue.rank))
        self._change(queue, queue.screens[queue.area].clear(wait=wait), now)

    def _change(self, queue: _Queue, changes: Iterable[Change], now: float) -> None:
        """Change the contents of displays. A new display waits until the rank's earlier output has been shown."""
        for display, bundle in changes:
            if self._charge(self._displays.growth(display, bundle)) and self._displays.set(display, queue.rank, bundle):
                self._waiting.put(queue, _Item(f"display:{display}", "", "", None, now, display))

    def _charge(self, characters: int) -> bool:
        """Count characters towards the limit. If too few are left, count them as dropped and return False."""
        if characters > self._left:
            self._dropped += characters
            return False
        self._left -= characters
        return True

    def _put_lines(self, queue: _Queue, stream: str, lines: Iterable[str], now: float) -> None:
        for line in lines:
            shown = f"{line}\n"[: self._left]
            self._dropped += len(line) + 1 - len(shown)
            self._left -= len(shown)
            if shown:
                text = shown.removesuffix("\n") + "\n"
                self._waiting.put(queue, _Item(f"{stream}:{text}", stream, text, None, now))


def _without_widget(data: dict[str, Any]) -> dict[str, Any]:
    """Return rich output without widgets, because the page has no connection to a rank's kernel."""
    return {kind: value for kind, value in data.items() if kind != "application/vnd.jupyter.widget-view+json"}


class _Shown:
    """Collects blocks, and joins consecutive text from the same ranks."""

    def __init__(self, displays: Displays) -> None:
        self._displays = displays
        self._blocks: list[tuple[tuple[int, ...], _Item, list[str]]] = []

    def add(self, ranks: tuple[int, ...], item: _Item) -> None:
        """Add an item that these ranks share."""
        if self._blocks and item.stream:
            last_ranks, last, texts = self._blocks[-1]
            if (last_ranks, last.stream) == (ranks, item.stream):
                texts.append(item.text)
                return
        self._blocks.append((ranks, item, [item.text]))

    def blocks(self) -> list[Block]:
        """Return the blocks in the order in which they were added."""
        return [self._block(ranks, item, "".join(texts)) for ranks, item, texts in self._blocks]

    def _block(self, ranks: tuple[int, ...], item: _Item, text: str) -> Block:
        bundle = self._displays.place(item.display) if item.display else item.bundle
        return Block(ranks=ranks, stream=item.stream, text=text, bundle=bundle, display=item.display)
