"""Tests for the measurements of a server, and for what it tells the hub."""

from __future__ import annotations

import http.server
import json
import logging
import os
import threading
import time
from contextlib import contextmanager

import pytest
from farandole.quotas.home import LIMIT, RECORD, HomeUse, Measurement
from farandole.quotas.measure import MeasureError
from farandole.quotas.watch import INTERVAL_SECONDS, HomeWatch, report_to_hub, watch_home

from hub.process import wait_until

MIB = 2**20
LOG = logging.getLogger("server")
USE = HomeUse(used=5, limit=7, free=2)
DEADLINE = 30


@contextmanager
def hub(status):
    """Run a server that answers all requests with a status, and yield its environment and what it was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Authorization"], self.headers["Content-Type"], json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            return

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    names = {
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{server.server_port}/hub/api",
        "JUPYTERHUB_API_TOKEN": "secret",
        "JUPYTERHUB_USER": "ada@example.org",
    }
    try:
        yield names, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def watch(home, report, limit=10 * MIB):
    return HomeWatch(home, limit, LOG, report=report)


def test_a_home_is_measured_when_it_is_time_and_reported(tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(MIB))
    reports = []
    assert watch(tmp_path, reports.append).measure_if_due() == INTERVAL_SECONDS
    (tmp_path / "more").write_bytes(os.urandom(MIB))
    # Another server of the user has just measured it.
    assert INTERVAL_SECONDS - DEADLINE < watch(tmp_path, reports.append).measure_if_due() < INTERVAL_SECONDS
    assert len(reports) == 2
    assert reports[0] == reports[1]
    assert MIB <= reports[0].used < 2 * MIB


@pytest.mark.parametrize(
    ("age", "seconds", "rests"), [(1000.0, 10.0, False), (1000.0, 30.0, True), (-1000.0, 1.0, False)]
)
def test_a_home_that_takes_long_rests_longer(tmp_path, age, seconds, rests):
    path = tmp_path / RECORD
    path.parent.mkdir(parents=True)
    found = {"used": 5, "time": time.time() - age, "seconds": seconds, "largest": {}}
    path.write_text(json.dumps(found))
    watch(tmp_path, lambda _: None).measure_if_due()
    assert (Measurement.read(tmp_path).used == 5) is rests


def test_a_file_system_of_its_own_is_not_measured(tmp_path):
    disk = os.statvfs(tmp_path)
    reports = []
    limit = disk.f_blocks * disk.f_frsize
    assert watch(tmp_path, reports.append, limit).measure_if_due() == INTERVAL_SECONDS
    assert reports[0].used > 0
    assert not (tmp_path / RECORD).exists()


def test_a_home_that_cannot_be_measured_is_logged_and_tried_again(tmp_path, caplog):
    assert watch(tmp_path / "missing", lambda _: None).measure_if_due() == INTERVAL_SECONDS
    assert "The home was not measured. The next try is in 5:00. The reason:" in caplog.text


def test_the_log_says_that_a_home_is_nearly_full(tmp_path, caplog):
    (tmp_path / "big").write_bytes(os.urandom(MIB))
    watch(tmp_path, lambda _: None, limit=MIB).measure_if_due()
    assert "Your home is full (" in caplog.text


def test_the_hub_is_told_with_the_servers_token():
    with hub(204) as (environ, asked):
        report_to_hub(USE, environ)
    body = {"used": 5, "limit": 7}
    assert asked == [("/hub/api/farandole/users/ada%40example.org/home", "token secret", "application/json", body)]


def test_a_hub_that_refuses_or_is_gone_is_an_error():
    with hub(403) as (environ, _), pytest.raises(MeasureError, match="did not accept the measurement .*403"):
        report_to_hub(USE, environ)
    with pytest.raises(MeasureError, match="did not accept the measurement"):
        report_to_hub(USE, environ)


def test_nothing_is_reported_without_a_hub_or_a_measurement():
    report_to_hub(USE, {})
    with hub(204) as (environ, asked):
        report_to_hub(HomeUse(used=None, limit=7, free=2), environ)
    assert asked == []


def test_a_server_measures_only_with_a_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    watch_home(LOG, {})
    assert not [thread for thread in threading.enumerate() if thread.name == "farandole-home"]
    watch_home(LOG, {LIMIT: str(MIB)})
    wait_until(lambda: Measurement.read(tmp_path) is not None, DEADLINE)
