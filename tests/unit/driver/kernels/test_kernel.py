"""Tests for the connection to a rank's kernel over a fake websocket: replies, output, journals and deaths."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from farandole.driver.kernels import connection
from farandole.driver.kernels.connection import SUBPROTOCOL
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.workers import worker as workers
from farandole.driver.workers.worker import Worker
from farandole.exceptions import DeadlineError, PermissionDeniedError, WorkerStartError
from farandole.protocol import COMM_TARGET, RECORD_NUMBER, RECORD_RUN
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

from tests.unit.driver.workers.test_source import served


class FakeKernel:
    """A fake worker with one kernel. `answer` returns the replies to a request as (channel, type, content, buffers)."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.rest = []

    def application(self):
        app = web.Application()
        app.router.add_get("/api/kernels/k/channels", self.channels)
        app.router.add_route("*", "/api/kernels/k{tail:.*}", self.note)
        return app

    async def note(self, request):
        self.rest.append((request.method, request.path))
        return web.Response(status=204)

    async def channels(self, request):
        self.headers = request.headers
        self.socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await self.socket.prepare(request)
        async for frame in self.socket:
            channel, parts = deserialize_msg_from_ws_v1(frame.data)
            header, content = json.loads(parts[0]), json.loads(parts[3])
            self.requests.append((channel, header, content, [bytes(part) for part in parts[4:]]))
            for message in self.answer(header, content):
                await self.send(header, *message)
        return self.socket

    async def send(self, parent, channel, kind, content, buffers=()):
        if kind == "close":
            await self.socket.close()
            return
        parts = [json.dumps(part).encode() for part in ({"msg_type": kind}, parent, {}, content)]
        await self.socket.send_bytes(serialize_msg_to_ws_v1([*parts, *buffers], channel))


OK = ("shell", "execute_reply", {"status": "ok"})
IDLE = ("iopub", "status", {"execution_state": "idle"})


@asynccontextmanager
async def connected(answer, *, fake_type=FakeKernel, **options):
    fake = fake_type(answer)
    runner = web.AppRunner(fake.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        kernel = RankKernel(Worker(name="c-w0", url=url, token="secret", session=session), "k", slot=0, **options)
        kernel.rank = 3
        try:
            await kernel.connect()
            yield kernel, fake
        finally:
            await kernel.close()
            await runner.cleanup()


def always(*messages):
    return lambda header, content: messages


async def test_the_token_is_in_a_header_and_not_in_the_address():
    async with connected(always(OK, IDLE)) as (_, fake):
        assert fake.headers["Authorization"] == "token secret"


@pytest.mark.parametrize("order", [(OK, IDLE), (IDLE, OK)])
async def test_an_execution_ends_with_its_reply_and_idle_in_any_order(order):
    async with connected(always(*order)) as (kernel, _):
        reply = await kernel.execute("pass")
        assert (reply.status, reply.rank, reply.worker) == ("ok", 3, "c-w0")
        assert not kernel.busy


async def test_output_goes_to_the_sink_before_the_end():
    seen = []
    output = ("iopub", "stream", {"name": "stdout", "text": "hi\n"})
    # The reply on the shell channel may arrive before output on iopub, but the idle status arrives after all output.
    async with connected(always(OK, output, IDLE)) as (kernel, _):
        await kernel.execute("print('hi')", sink=lambda *message: seen.append(message))
    assert seen == [(3, "stream", {"name": "stdout", "text": "hi\n", "printed": None}, None)]


async def test_an_error_is_a_reply():
    error = {"status": "error", "ename": "ValueError", "evalue": "boom", "traceback": ["line"]}
    async with connected(always(("shell", "execute_reply", error), IDLE)) as (kernel, _):
        reply = await kernel.execute("raise ValueError('boom')")
    assert (reply.status, reply.ename, reply.evalue, reply.traceback) == ("error", "ValueError", "boom", ("line",))


async def test_an_evaluated_expression_returns_json():
    value = {"status": "ok", "data": {"text/plain": repr(json.dumps({"a": [1, "é'"]}))}}
    reply = ("shell", "execute_reply", {"status": "ok", "user_expressions": {"value": value}})
    async with connected(always(reply, IDLE)) as (kernel, fake):
        assert (await kernel.evaluate("f()")).value == {"a": [1, "é'"]}
    _, _, content, _ = fake.requests[0]
    assert (content["code"], content["silent"]) == ("", True)


async def test_an_expression_that_fails_is_an_error():
    value = {"status": "error", "ename": "KeyError", "evalue": "'x'", "traceback": []}
    reply = ("shell", "execute_reply", {"status": "ok", "user_expressions": {"value": value}})
    async with connected(always(reply, IDLE)) as (kernel, _):
        result = await kernel.evaluate("f()")
    assert (result.status, result.ename, result.value) == ("error", "KeyError", None)


async def test_a_death_ends_the_current_and_all_later_requests_with_its_cause():
    death = ("iopub", "status", {"execution_state": "dead", "cause": "killed by signal 9 (SIGKILL)"})
    async with connected(always(death)) as (kernel, _):
        reply = await kernel.execute("crash()")
        assert (reply.status, reply.evalue) == ("dead", "killed by signal 9 (SIGKILL)")
        assert not kernel.alive
        assert (await kernel.execute("pass")).status == "dead"


async def test_a_lost_connection_is_a_death():
    async with connected(always(("", "close", {}))) as (kernel, _):
        reply = await kernel.execute("pass")
    assert (reply.status, reply.evalue) == ("dead", "lost: its worker ended or cannot be reached")


async def test_a_death_is_reported_once_and_a_close_is_not_a_death():
    deaths = []
    async with connected(always(("", "close", {})), on_death=lambda: deaths.append("dead")) as (kernel, _):
        await kernel.execute("pass")
        await kernel.kill()
        assert deaths == ["dead"]
    async with connected(always(), on_death=lambda: deaths.append("closed")) as (kernel, _):
        await kernel.close()
        assert not kernel.alive
    assert deaths == ["dead"]


async def test_idle_time_includes_the_time_before_the_attach():
    async with connected(always(), idle_seconds=100.0) as (kernel, _):
        kernel.mark_dead("lost")
        assert 100 <= kernel.idle_seconds < 160


async def test_messages_and_their_buffers_reach_the_driver():
    seen = []
    records = {"run": "r", "rank": 3, "records": [{"kind": "value"}]}
    comm = ("iopub", "comm_msg", {"comm_id": COMM_TARGET, "data": records}, [b"blob"])
    foreign = ("iopub", "comm_msg", {"comm_id": "y", "data": {"records": "a library's own"}})
    async with connected(always(foreign, comm, OK, IDLE), on_records=lambda *batch: seen.append(batch)) as (kernel, _):
        await kernel.execute("give()")
    [(rank, data, buffers, _)] = seen
    assert (rank, data, [bytes(buffer) for buffer in buffers]) == (3, records, [b"blob"])


async def test_output_of_another_clients_execution_is_ignored():
    async with connected(always()) as (kernel, fake):
        work = asyncio.create_task(kernel.execute("slow()"))
        while not fake.requests:
            await asyncio.sleep(0.01)
        await fake.send({"msg_id": "other"}, *OK)
        await fake.send({"msg_id": "other"}, *IDLE)
        header = fake.requests[0][1]
        await fake.send(header, *OK)
        assert not work.done()
        await fake.send(header, *IDLE)
        assert (await work).status == "ok"


async def test_a_pushed_value_is_sent_as_one_buffer():
    async with connected(always()) as (kernel, fake):
        await kernel.push("farandole.push", {"key": "k"}, b"\x00blob")
        while not fake.requests:
            await asyncio.sleep(0.01)
    channel, header, content, buffers = fake.requests[0]
    assert (channel, header["msg_type"], content["data"], buffers) == (
        "shell",
        "comm_open",
        {"key": "k"},
        [b"\x00blob"],
    )


async def test_a_subshell_is_requested_on_the_control_channel_and_used():
    def answer(header, content):
        if header["msg_type"] == "create_subshell_request":
            return [("control", "create_subshell_reply", {"status": "ok", "subshell_id": "s1"})]
        return [OK, IDLE]

    async with connected(answer) as (kernel, fake):
        await kernel.evaluate("leave()", subshell=await kernel.subshell())
    (first, _, _, _), (second, header, _, _) = fake.requests
    assert (first, second, header["subshell_id"]) == ("control", "shell", "s1")


async def test_interrupt_and_kill_use_the_workers_api():
    async with connected(always()) as (kernel, fake):
        await kernel.interrupt()
        await kernel.kill()
        assert fake.rest == [("POST", "/api/kernels/k/interrupt"), ("DELETE", "/api/kernels/k")]
        assert kernel.death == "stopped, because it did not answer an interrupt"


async def test_errors_name_missing_and_disconnected_kernels():
    async with connected(always()) as (kernel, _):
        missing = RankKernel(kernel.worker, "nope", slot=1)
        missing.rank = 1
        with pytest.raises(WorkerStartError, match="worker c-w0 did not open a channel to its kernel") as refused:
            await missing.connect()
        assert "127.0.0.1" not in str(refused.value)
        assert "127.0.0.1" in refused.value.__notes__[0]
        with pytest.raises(DeadlineError, match="rank 1 on worker c-w0 is not connected"):
            await missing.execute("pass")


class RecordingKernel(FakeKernel):
    """A kernel whose worker keeps a journal. While the websocket is disconnected, messages are only in the journal."""

    def __init__(self):
        super().__init__(lambda header, content: ())
        self.kernels = ["k"]
        self.refusing, self.refusal = 0, 503
        self.silent = self.closed = False
        self.recorded = []
        self.read_after = []
        self.marks = {}

    def application(self):
        app = super().application()
        app.router.add_get("/farandole/records", self.listing)
        app.router.add_get("/farandole/records/r/k", self.record)
        return app

    async def channels(self, request):
        if self.silent:
            await asyncio.Event().wait()
        if self.closed:
            return web.Response(status=503, text="not now")
        return await super().channels(request)

    async def listing(self, request):
        if self.refusing:
            self.refusing -= 1
            return web.Response(status=self.refusal, text="no such server")
        record = {"run": "r", "kernel": "k", "rank": 3, "requests": self.marks, "ended": None, "led": True}
        return web.json_response({"kernels": self.kernels, "records": [{**record, "count": 0, "about": {}}]})

    async def record(self, request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        self.read_after.append(int(request.query["after"]))
        for frame in self.recorded[self.read_after[-1] :]:
            await answer.write(len(frame).to_bytes(4, "big") + frame)
        return answer

    async def say(self, channel, kind, content, *, live):
        """Add a message to the journal, and also send it over the websocket if ``live``."""
        cell = next(message for message, part in self.marks.items() if part == "cell")
        metadata = {RECORD_NUMBER: len(self.recorded) + 1, RECORD_RUN: "r"}
        parts = [json.dumps(part).encode() for part in ({"msg_type": kind}, {"msg_id": cell}, metadata, content)]
        frame = serialize_msg_to_ws_v1(parts, channel)
        self.recorded.append(frame)
        if live:
            await self.socket.send_bytes(frame)


@asynccontextmanager
async def recorded_run(presence):
    """Yield a kernel, its fake worker, the list of outputs, and the task of a cell that has printed 0 and 1."""
    fake, seen = RecordingKernel(), []
    runner = web.AppRunner(fake.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        worker = Worker(name="c-w0", url=url, token="secret", session=session, presence=presence)
        kernel = RankKernel(worker, "k", slot=0)
        await kernel.connect()
        try:
            mark = {"run": "r", "part": "begin", "about": {}}
            begin = asyncio.create_task(kernel.execute("begin", mark=mark))
            cell = asyncio.create_task(
                kernel.execute("x", mark={"run": "r", "part": "cell"}, sink=lambda *said: seen.append(said[2]["text"]))
            )
            await until(lambda: len(fake.requests) == 2)
            fake.marks = {
                header["msg_id"]: content["code"].replace("x", "cell") for _, header, content, _ in fake.requests
            }
            for number in range(2):
                await fake.say("iopub", "stream", {"name": "stdout", "text": str(number)}, live=True)
            await until(lambda: len(seen) == 2)
            yield kernel, fake, seen, cell
            begin.cancel()
        finally:
            await kernel.close()
            await runner.cleanup()


async def until(happened):
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.01)


async def there():
    return True


async def nobody_knows():
    return None


async def gone():
    return False


async def refused():
    raise PermissionDeniedError("the hub refused the token (403 Forbidden). Run `farandole login`.", status=403)


async def test_a_silent_journal_stream_is_closed(monkeypatch):
    async def record(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        for frame in (b"", b"said", b"", b"more"):
            await answer.write(len(frame).to_bytes(4, "big") + frame)
        await asyncio.Event().wait()

    monkeypatch.setattr(workers, "FOLLOW_TIMEOUT", aiohttp.ClientTimeout(total=None, sock_read=1))
    app = web.Application()
    app.router.add_get("/farandole/records/r/k", record)
    async with served(app) as url, aiohttp.ClientSession() as session:
        frames = Worker(name="c-w0", url=f"{url}/", token="secret", session=session).follow("r", "k", 0)
        assert [await anext(frames), await anext(frames)] == [b"said", b"more"]
        with pytest.raises(WorkerStartError, match="worker c-w0 stopped sending its journal of run r"):
            await anext(frames)


async def test_a_broken_connection_is_reopened_and_missed_messages_come_once_from_the_journal():
    async with recorded_run(there) as (kernel, fake, seen, cell):
        first = fake.socket
        await fake.say("iopub", "stream", {"name": "stdout", "text": "2"}, live=False)
        await fake.say("shell", "execute_reply", {"status": "ok"}, live=False)
        await first.close()
        assert (await cell).status == "ok"
        assert seen == ["0", "1", "2"]
        await until(lambda: fake.socket is not first)
        assert kernel.alive


async def test_a_driver_without_a_network_finds_its_rank_again_after_any_time(monkeypatch):
    # The driver tries to reach its rank six times, which takes longer.
    monkeypatch.setattr(workers, "LOST_SECONDS", 0.4)
    monkeypatch.setattr(connection, "LOST_SECONDS", 0.4)
    async with recorded_run(nobody_knows) as (kernel, fake, seen, cell):
        fake.refusing = 5
        await fake.say("iopub", "stream", {"name": "stdout", "text": "2"}, live=False)
        await fake.say("shell", "execute_reply", {"status": "ok"}, live=False)
        await fake.socket.close()
        assert (await cell).status == "ok"
        assert (seen, fake.refusing) == (["0", "1", "2"], 0)
        await until(lambda: kernel.connected)


@pytest.mark.parametrize("refusal", [503, 200], ids=["refuses", "shows a page"])
async def test_a_driver_waits_for_a_restarting_proxy(refusal):
    async with recorded_run(nobody_knows) as (_kernel, fake, _seen, cell):
        fake.refusing, fake.refusal = 5, refusal
        await fake.say("shell", "execute_reply", {"status": "ok"}, live=False)
        await fake.socket.close()
        assert (await cell).status == "ok"
        assert fake.refusing == 0


@pytest.mark.parametrize("presence", [gone, there])
async def test_a_worker_that_refuses_and_is_gone_is_dead(presence):
    async with recorded_run(presence) as (_kernel, fake, _, cell):
        fake.refusing = 1000
        await fake.socket.close()
        reply = await cell
        assert (reply.status, reply.evalue) == ("dead", "lost: its worker ended or cannot be reached")


async def test_a_rank_is_lost_if_the_hub_refuses_the_token():
    async with recorded_run(refused) as (kernel, fake, _, cell):
        fake.refusing = 1000
        await fake.socket.close()
        reply = await cell
        assert reply.status == "dead"
        assert reply.evalue.startswith(
            "lost: the hub refused the token (403 Forbidden). Run `farandole login`. Its worker"
        )
        assert kernel.worker.silent_since is None


async def test_a_driver_without_a_network_knows_since_when():
    async with recorded_run(nobody_knows) as (kernel, fake, _, cell):
        fake.refusing = 1_000_000
        begin = time.time()
        await fake.socket.close()
        await until(lambda: kernel.worker.silent_since)
        assert begin <= kernel.worker.silent_since <= time.time()
        fake.refusing = 0
        await until(lambda: kernel.worker.silent_since is None)
        await fake.say("shell", "execute_reply", {"status": "ok"}, live=False)
        cell.cancel()


async def test_a_journal_that_was_read_to_its_end_is_confirmed():
    async with recorded_run(there) as (_kernel, fake, _, cell):
        await fake.say("shell", "execute_reply", {"status": "ok"}, live=False)
        await fake.socket.close()
        assert (await cell).status == "ok"
        await until(lambda: 3 in fake.read_after)
        assert fake.read_after == [2, 3]


class SilentKernel(FakeKernel):
    """A worker that answers no pings, as if the network had failed, and keeps the answers to its own ones."""

    def __init__(self, answer):
        super().__init__(answer)
        self.pongs = []

    async def channels(self, request):
        self.socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), autoping=False)
        await self.socket.prepare(request)
        async for frame in self.socket:
            if frame.type is aiohttp.WSMsgType.PONG:
                self.pongs.append(frame.data)
        return self.socket


async def test_a_worker_answers_while_its_websocket_works_even_if_the_kernel_hangs(monkeypatch):
    async with connected(always()) as (kernel, _):
        assert await kernel.worker_answers()
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.1)
    async with connected(always(), fake_type=SilentKernel) as (kernel, fake):
        assert kernel.connected
        assert not await kernel.worker_answers()
        await fake.socket.ping(b"behind the end of a run")
        await until(lambda: fake.pongs == [b"behind the end of a run"])


async def test_a_server_that_hangs_during_a_reconnect_is_retried(monkeypatch):
    monkeypatch.setattr(workers, "OPEN_SECONDS", 0.2)
    async with recorded_run(there) as (kernel, fake, _, _cell):
        fake.silent = True
        await fake.socket.close()
        await until(lambda: not kernel.connected)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kernel.reachable(), 1)
        fake.silent = False
        await asyncio.wait_for(kernel.reachable(), 30)
        assert kernel.alive


class SlowKernel(FakeKernel):
    """A worker whose kernel needs half a second to start."""

    async def channels(self, request):
        await asyncio.sleep(0.5)
        return await super().channels(request)


async def test_a_kernel_that_starts_slowly_is_given_time_for_its_first_connection(monkeypatch):
    monkeypatch.setattr(workers, "OPEN_SECONDS", 0.1)
    async with connected(always(OK, IDLE), fake_type=SlowKernel) as (kernel, _):
        assert kernel.connected


async def test_a_kernel_that_never_starts_is_an_error_that_names_the_worker(monkeypatch):
    monkeypatch.setattr(workers, "START_SECONDS", 0.1)
    with pytest.raises(WorkerStartError, match="worker c-w0 did not open a channel to its kernel, which") as refused:
        async with connected(always(OK, IDLE), fake_type=SlowKernel):
            pass
    assert refused.value.__notes__ == ["no answer within 0.1 s"]


async def test_a_worker_that_answers_but_accepts_no_connection_is_given_up(monkeypatch):
    monkeypatch.setattr(connection, "LOST_SECONDS", 1.0)
    async with recorded_run(there) as (kernel, fake, _, _cell):
        fake.closed = True
        await fake.socket.close()
        await until(lambda: not kernel.connected)
        await asyncio.wait_for(kernel.reachable(), 30)
        assert kernel.death == "lost: its worker answers, but did not open a channel to its kernel for 1 s"


async def test_heartbeats_use_the_control_channel():
    async with connected(always(("control", "kernel_info_reply", {"status": "ok"}))) as (kernel, fake):
        assert (await kernel.ping()).status == "ok"
        assert not kernel.busy
    assert [(channel, header["msg_type"]) for channel, header, _, _ in fake.requests] == [
        ("control", "kernel_info_request")
    ]


async def test_a_late_message_of_an_earlier_run_does_not_hide_messages_of_this_one():
    async with recorded_run(None) as (kernel, fake, seen, _cell):
        late = [{"msg_type": "stream"}, {"msg_id": "before"}, {RECORD_NUMBER: 50, RECORD_RUN: "q"}, {"text": "late"}]
        await fake.socket.send_bytes(serialize_msg_to_ws_v1([json.dumps(part).encode() for part in late], "iopub"))
        await fake.say("iopub", "stream", {"name": "stdout", "text": "2"}, live=True)
        await until(lambda: len(seen) == 3)
        assert (seen, kernel.last_number) == (["0", "1", "2"], 3)


async def test_waiting_for_a_broken_connection_returns_whether_the_rank_is_alive():
    async with recorded_run(there) as (kernel, fake, _, cell):
        fake.refusing = 1000
        await fake.socket.close()
        await until(lambda: not kernel.connected)
        assert kernel.alive
        await asyncio.wait_for(kernel.reachable(), 30)
        assert not kernel.alive
        assert (await cell).status == "dead"


async def test_the_journal_has_the_last_output_and_the_cause_of_a_kernels_death():
    async with recorded_run(there) as (_kernel, fake, seen, cell):
        fake.kernels = []
        await fake.say("iopub", "stream", {"name": "stdout", "text": "last"}, live=False)
        death = {"execution_state": "dead", "cause": "killed by signal 9 (SIGKILL)"}
        await fake.say("iopub", "status", death, live=False)
        await fake.socket.close()
        reply = await cell
        assert (reply.status, reply.evalue) == ("dead", "killed by signal 9 (SIGKILL)")
        assert seen == ["0", "1", "last"]


async def test_a_request_without_a_journal_fails_and_the_kernel_stays_alive():
    async with recorded_run(there) as (kernel, fake, _, _cell):
        lost = asyncio.create_task(kernel.execute("unrecorded()"))
        await until(lambda: len(fake.requests) == 3)
        await fake.socket.close()
        reply = await lost
        assert (reply.status, reply.ename) == ("error", "ConnectionLost")
        assert kernel.alive
