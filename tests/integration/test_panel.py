"""Tests for the panel's routes on a real hub, including runs that another driver or no driver leads."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from farandole import Cluster
from farandole.driver.workers.addresses import LocalhostResolver
from farandole.exceptions import NoClusterError
from farandole.protocol import Status
from farandole.runs.store import RunStore
from farandole.server.panel import wire

from tests.lost import CELL, Lost
from tests.panel import START_DEADLINE, PanelServer
from tests.unit.server.panel.test_wire import misfit


@asynccontextmanager
async def page_of(hub, user):
    """Start a user's notebook server and yield its panel. Then check that no response contains the server's token."""
    address = await asyncio.to_thread(hub.start_notebook, user)
    secret = hub.environment_of(user, "")["JUPYTERHUB_API_TOKEN"]
    connector = aiohttp.TCPConnector(resolver=LocalhostResolver())
    async with aiohttp.ClientSession(connector=connector) as session:
        page = PanelServer(f"{address}/farandole/panel/", session, hub.token_for(user))
        yield page
    assert page.answers
    assert not [text for text in page.answers if secret in text], "the hub's token has reached the page"


def only(said):
    """Return the first cluster in a message, or None if the message contains no cluster."""
    return said["clusters"][0] if said["clusters"] else None


def is_so(**wanted):
    def check(said):
        found = only(said)
        return found is not None and all(found[key] == value for key, value in wanted.items())

    return check


@pytest.mark.release
async def test_a_cluster_from_start_to_stop_with_a_run_of_another_driver(hub, tmp_path):
    store = RunStore(hub.state / "homes" / "petra" / "farandole" / "runs")
    where = {"hub_url": hub.url, "token": hub.token_for("petra"), "store": store, "progress": print}
    end = tmp_path / "end"
    async with page_of(hub, "petra") as page, page.stream() as stream:
        asked = {"name": "panel", "workers": 2, "profile": "lean", "ranks": None, "backend": "torch", "wait": False}
        assert misfit(await page.ask("POST", "clusters", 202, json=asked), wire.Cluster) is None
        starting = await stream.until(
            "clusters", lambda said: only(said) and any(map(has_message, only(said)["workers"]))
        )
        assert (only(starting)["state"], only(starting)["wanted"]) == ("starting", 2)
        await stream.until("clusters", is_so(state="ready", size=2), seconds=START_DEADLINE)
        used = await stream.until("clusters", lambda said: all(cpu(one) is not None for one in only(said)["workers"]))
        assert misfit(used, wire.ClustersMessage) is None
        assert all(one["usage"]["memory"] > 10**7 and one["idle_until"] for one in only(used)["workers"])
        part = await page.ask("GET", "clusters/panel/workers/panel-w0/log?offset=0")
        assert "ServerApp" in part["text"]

        cluster = await asyncio.to_thread(Cluster.attach, "panel", **where)
        try:
            assert cluster.backend == "torch"
            run = await asyncio.to_thread(
                cluster.train, CELL.format(end=str(end), last=""), name="elsewhere", detach=True
            )
            await stream.watch(run.id, logs=[{"run": run.id, "rank": 1, "worker": None, "offset": 0}])
            shown = await stream.until("run", lambda said: len(said["view"]["series"]) == 1)
            assert misfit(shown, wire.RunMessage) is None
            assert shown["summary"]["goes_on"]
            led = await stream.known("clusters", is_so(runs=[run.id]))
            assert only(led)["lead"]["busy"]
            assert [one["ranks"][0]["alive"] for one in only(led)["workers"]] == [True, True]
            while "line 5\n" not in stream.log():
                await stream.until("log")
            refused = await page.ask("DELETE", "clusters/panel", 409)
            assert (refused["code"], refused["runs"]) == ("runs_go_on", [run.id])

            await page.ask("POST", f"runs/{run.id}/stop", 202)
            await stream.until("run", lambda said: said["view"]["status"] == "interrupted")
            assert run.status is Status.INTERRUPTED
            text = await page.ask("GET", f"runs/{run.id}/csv")
            assert text.startswith("rank,time,step,epoch,value\n0,")
            await page.ask("PATCH", "clusters/panel", 202, json={"workers": 1})
            await stream.until("clusters", is_so(size=1, wanted=None))
            assert cluster.size == 1
            assert "".join(block.text for block in cluster.run("print('kept')")) == "kept\n"

            await page.ask("DELETE", "clusters/panel", 202)
            await stream.until("clusters", lambda said: said["clusters"] == [])
            with pytest.raises(NoClusterError, match="was stopped from the panel"):
                await asyncio.to_thread(cluster.run, "1")
        finally:
            end.touch()
            await asyncio.to_thread(cluster.close)


def has_message(worker):
    return worker["message"] is not None


def cpu(worker):
    return worker["usage"] and worker["usage"]["cpu"]


async def test_a_run_without_a_driver_is_shown_and_stopped(hub):
    home = Path(hub.state) / "homes" / "lost" / "farandole"
    home.mkdir(parents=True, exist_ok=True)
    async with page_of(hub, "lost") as page:
        lost = await asyncio.to_thread(Lost, hub, home, "unled", "torch")
        try:
            [info] = [one for one in lost.store.list() if one.cluster == "unled"]
            async with page.stream() as stream:
                seen = await stream.until("runs", lambda said: said["runs"][0]["goes_on"])
                assert (seen["runs"][0]["id"], seen["runs"][0]["status"]) == (info.id, "lost")
                assert only(await stream.known("clusters", is_so(runs=[info.id])))["lead"] is None
                await page.ask("POST", f"runs/{info.id}/stop", 202)
                await stream.until("runs", lambda said: said["runs"][0]["status"] == "interrupted")
                await stream.known("clusters", is_so(runs=[]))
                await page.ask("DELETE", "clusters/unled", 202)
                await stream.until("clusters", lambda said: said["clusters"] == [])
        finally:
            await asyncio.to_thread(lost.stop)
