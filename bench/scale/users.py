"""Measures the hub and proxy with many users: response times, costs, and which limit on users is reached first."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING

import aiohttp
from farandole.driver.workers.addresses import LocalhostResolver

from bench.record import median_of
from bench.scale.load import Api, Meter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.record import Record
    from bench.scale.load import Cost, Load
    from hub.process import HubProcess

MOST_MILLISECONDS = 200
"""The limit for the median response time of the hub's API when all users have a server."""

PROXY_RATE = 1.0
"""The assumed number of requests per second that an active user sends through the proxy."""
UNSEEN_RATE = 1 / 30
SEEN_RATE = 1 / 3
ACTIVITY_RATE = 1 / 300
"""Requests per second from a notebook server to the hub for a hidden panel, a visible panel and activity reports."""
PANELS_SEEN = 0.1
"""The assumed share of users with a visible panel."""

ALONE = "API, a request at a time, ms"
MANY = "API, 40 requests a second, ms"


@dataclass
class Users:
    """The measurements: the rows of the growth table by number of users, and the cost of requests with all users."""

    rows: dict[str, dict[int, float]] = field(default_factory=dict)
    slowest: float = 0.0
    hub: Cost | None = None
    proxy: Cost | None = None

    def note(self, row: str, users: int, value: float) -> None:
        """Set a row's value for a number of users."""
        self.rows.setdefault(row, {})[users] = value


async def measure(hub: HubProcess, token: str, sizes: Sequence[int], load: Load) -> Users:
    """Start servers for an increasing number of users, and measure the hub and proxy at each size."""
    proxy = int((hub.settings.state / "proxy.pid").read_text())
    meter = Meter({"hub": hub.process.pid, "proxy": proxy})
    found, names = Users(), [f"user-{number}" for number in range(max(sizes))]
    connector = aiohttp.TCPConnector(limit=0, resolver=LocalhostResolver())
    async with aiohttp.ClientSession(connector=connector) as session:
        api = Api(hub.url, token, session)
        for before, size in itertools.pairwise([0, *sizes]):
            began = time.perf_counter()
            await api.add_users(names[before:size])
            found.note("start of a server, ms", size, 1000 * (time.perf_counter() - began) / (size - before))
            await _measure_size(api, names[:size], meter, load, found)
            print(f"  {size:,} users", flush=True)
        found.hub = await api.cost([f"/hub/api/users/{name}" for name in names], load, meter)
        found.proxy = await api.cost([f"/user/{name}/api" for name in names], load, meter)
    return found


async def _measure_size(api: Api, names: Sequence[str], meter: Meter, load: Load, found: Users) -> None:
    """Send requests such as these users' servers and drivers send; record the response times and the memory."""
    asked = [f"/hub/api/users/{names[number * 37 % len(names)]}" for number in range(load.requests)]
    times = [1000 * await api.time(path) for path in asked[: load.in_turns]]
    found.note(ALONE, len(names), median(times))
    found.note("  95 of 100, ms", len(names), quantiles(times, n=20)[-1])
    many = await api.times(asked, per_second=load.per_second)
    found.note(MANY, len(names), 1000 * median(many))
    page = [await api.time("/hub/api/users?limit=50") for _ in range(5)]
    found.note("a page of 50 users, ms", len(names), 1000 * median(page))
    for process, megabytes in meter.megabytes().items():
        found.note(f"{process}, MB", len(names), megabytes)


def records(found: Users) -> Iterator[Record]:
    """Yield the results of the measurements as records; the last record names the limit that is reached first."""
    most = max(found.rows["hub, MB"])
    for name, row, unit in (
        ("api_milliseconds", ALONE, "ms"),
        ("api_milliseconds_p95", "  95 of 100, ms", "ms"),
        ("api_milliseconds_loaded", MANY, "ms"),
        ("server_start_milliseconds", "start of a server, ms", "ms"),
        ("hub_megabytes", "hub, MB", "MB"),
        ("proxy_megabytes", "proxy, MB", "MB"),
    ):
        limit = f"<= {MOST_MILLISECONDS}" if name == "api_milliseconds" else ""
        note = f"{most:,} users' servers"
        yield median_of(f"scale_{name}_{most}", [found.rows[row][most]], unit, limit=limit, note=note)
    yield from _limits(found, most)


def _limits(found: Users, most: int) -> Iterator[Record]:
    """Yield the CPU time per request, the hub's memory per user, and the numbers of users that saturate a core."""
    assert found.hub is not None
    assert found.proxy is not None
    hub, proxy = found.hub.milliseconds("hub"), found.proxy.milliseconds("proxy")
    for name, cost, each in (("hub", found.hub, hub), ("proxy", found.proxy, proxy)):
        answered = cost.requests / cost.seconds
        note = f"{1000 / each:,.0f} per second saturate a core; {answered:,.0f} per second were answered"
        yield median_of(f"scale_{name}_cpu_milliseconds", [each], "ms of CPU per request", note=note)
    usual = ACTIVITY_RATE + PANELS_SEEN * SEEN_RATE + (1 - PANELS_SEEN) * UNSEEN_RATE
    held = found.rows["hub, MB"]
    per_user = 1000 * (held[most] - held[min(held)]) / (most - min(held))
    first = {
        f"the proxy's core: {PROXY_RATE:g} request per second and user": 1000 / (PROXY_RATE * proxy),
        f"the hub's core: {PANELS_SEEN:.0%} of the users have the panel open": 1000 / (usual * hub),
        "the hub's core: all users have the panel open": 1000 / ((ACTIVITY_RATE + SEEN_RATE) * hub),
    }
    for name, (what, users) in zip(("proxy", "hub", "hub_panels"), first.items(), strict=True):
        yield median_of(f"scale_users_{name}", [users], "users", note=what)
    yield median_of("scale_hub_kilobytes_per_user", [per_user], "kB")
    what, users = min(list(first.items())[:2], key=lambda each: each[1])
    yield median_of("scale_users_first_limit", [users], "users", note=f"reached first: {what}")
