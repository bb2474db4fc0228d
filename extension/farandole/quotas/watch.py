"""Measures the home in the background of a server, and tells the hub how much of it is used."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPException
from logging import Logger
from pathlib import Path
from threading import Thread
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from farandole.quotas.home import HomeUse, Measurement, is_own_disk, limit_of, use_of
from farandole.quotas.measure import MeasureError, measure
from farandole.times import duration_text

INTERVAL_SECONDS = 300.0
REST = 50.0
"""A home rests this many times as long as its measurement took, so that at most 2 % of the time is spent on it."""
REPORT_SECONDS = 10.0


def watch_home(
    log: Logger, environ: Mapping[str, str] = os.environ, *, first_seconds: float = 0.0, reports: bool = True
) -> None:
    """Measure the home until this process ends, if the hub sets a limit.

    - The first measurement begins within ``first_seconds``, so that the workers of a cluster do not all make it.
    - ``reports`` is false for workers: the hub needs the use from one server of the user only.
    """
    limit = limit_of(environ)
    if limit is not None:
        report = partial(report_to_hub, environ=environ) if reports else _ignore
        watch = HomeWatch(Path.home(), limit, log, report=report)
        arguments = (random.uniform(0.0, first_seconds),)
        Thread(target=watch.run, args=arguments, name="farandole-home", daemon=True).start()


class HomeWatch:
    """Measures a home whenever its last measurement, by any server of the user, is old."""

    def __init__(self, home: Path, limit: int, log: Logger, *, report: Callable[[HomeUse], None]) -> None:
        """Write to ``log`` why a home is not measured, and call ``report`` with its use."""
        self._home = home
        self._limit = limit
        self._log = log
        self._report = report

    def run(self, wait: float) -> None:
        """Measure the home after ``wait`` seconds, and then again as long as the process lives."""
        while True:
            time.sleep(wait)
            wait = self.measure_if_due()

    def measure_if_due(self) -> float:
        """Measure and report the home if it is time for it, and return after how many seconds to call this again."""
        last = Measurement.read(self._home)
        if last is not None and 0 <= (age := time.time() - last.time) < (rest := _rest(last)):
            self._tell(last)
            return rest - age
        try:
            # A home with a file system of its own needs no measurement to know its use.
            last = None if is_own_disk(os.statvfs(self._home), self._limit) else measure(self._home)
            self._tell(last)
        except OSError as exc:
            again = duration_text(INTERVAL_SECONDS)
            self._log.warning("The home was not measured. The next try is in %s. The reason: %s", again, exc)
            return INTERVAL_SECONDS
        return INTERVAL_SECONDS if last is None else _rest(last)

    def _tell(self, last: Measurement | None) -> None:
        use = use_of(self._home, self._limit, last)
        if use.is_nearly_full:
            self._log.warning("%s", use.warning)
        self._report(use)


def _ignore(_use: HomeUse) -> None:
    return None


def _rest(last: Measurement) -> float:
    return max(INTERVAL_SECONDS, REST * last.seconds)


def report_to_hub(use: HomeUse, environ: Mapping[str, str]) -> None:
    """Tell the hub how much of the home is used, which the page for starting a server shows.

    Raises `MeasureError` if the hub refuses it or does not answer.
    """
    api, token, user = (environ.get(f"JUPYTERHUB_{name}", "") for name in ("API_URL", "API_TOKEN", "USER"))
    if not api or not token or use.used is None:
        return
    request = Request(
        f"{api.rstrip('/')}/farandole/users/{quote(user, safe='')}/home",
        data=json.dumps({"used": use.used, "limit": use.limit}).encode(),
        headers={"Authorization": f"token {token}", "Content-Type": "application/json"},
        method="POST",
    )
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=REPORT_SECONDS):
            return
    except (URLError, HTTPException, OSError) as exc:
        raise MeasureError(f"the hub did not accept the measurement ({exc})") from exc
