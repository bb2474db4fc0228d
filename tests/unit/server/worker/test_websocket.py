"""Tests of the order in which the worker forwards the messages of a kernel, with streams that stand in for it."""

import json
from types import SimpleNamespace

import pytest
from farandole.frames import PROTOCOL
from farandole.protocol import NO_OUTPUT, RUN_MARK, Part
from farandole.server.activity import ActivityKernelManager
from farandole.server.journal.journals import Journals
from farandole.server.worker.websocket import RankWebsocketConnection
from jupyter_client.session import Session
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

EARLY = {NO_OUTPUT: True}


class Stream:
    """A channel of a kernel that never answers by itself."""

    def __init__(self, channel):
        self.channel = channel
        self.sent = []

    def send_multipart(self, parts, *_flags, **_options):
        self.sent.append(parts)

    def flush(self, _flag):
        pass


class Handler:
    """A websocket that keeps the pings which the driver has not answered."""

    def __init__(self):
        self.pings, self.pongs = [], []

    def ping(self, data):
        self.pings.append(data)

    def on_pong(self, data):
        self.pongs.append(data)


class Connection(RankWebsocketConnection):
    """A connection without a websocket, which keeps what it forwards to the driver."""

    kernel_id = "rank"
    subprotocol = PROTOCOL
    kernel_manager = multi_kernel_manager = websocket_handler = None

    def __init__(self, manager):
        self.websocket_handler = Handler()
        self.kernel_manager = SimpleNamespace(execution_state="idle", last_activity=None, provisioner=None)
        self.multi_kernel_manager = manager
        self.forwarded = []
        super().__init__(session=Session())
        self.channels = {"shell": Stream("shell"), "iopub": Stream("iopub")}

    def write_message(self, frame, *, binary):
        assert binary
        header, parent = (json.loads(part) for part in deserialize_msg_from_ws_v1(frame)[1][:2])
        self.forwarded.append((header["msg_type"], parent["msg_id"]))

    def request(self, name, mark=None, **header):
        """Receive an execute request with this message id from the driver."""
        header = {"msg_type": "execute_request", "msg_id": name, "session": self.session.session, **header}
        parts = [header, {}, {RUN_MARK: mark} if mark else {}, {"code": ""}]
        self.handle_incoming_message(serialize_msg_to_ws_v1([json.dumps(part).encode() for part in parts], "shell"))

    def hear(self, channel, kind, content, name, metadata=None):
        """Receive a message of the kernel about a request."""
        parent = {"msg_type": "execute_request", "msg_id": name, "session": self.session.session}
        message = self.session.msg(kind, content, parent={"header": parent}, metadata=metadata)
        self.handle_outgoing_message(self.channels[channel], self.session.serialize(message, ident=b"kernel"))

    def reply(self, name, metadata=None):
        self.hear("shell", "execute_reply", {"status": "ok"}, name, metadata)

    def idle(self, name):
        self.hear("iopub", "status", {"execution_state": "idle"}, name)

    def output(self, name):
        self.hear("iopub", "stream", {"name": "stdout", "text": "x"}, name)


@pytest.fixture
def manager(tmp_path):
    manager = ActivityKernelManager()
    manager.journals = Journals(tmp_path)
    manager._kernels["rank"] = SimpleNamespace(provisioner=None)
    return manager


@pytest.fixture
def connection(manager):
    return Connection(manager)


def replies(connection):
    return [name for kind, name in connection.forwarded if kind == "execute_reply"]


def test_a_reply_is_forwarded_after_the_output(connection, manager):
    connection.request("a")
    connection.reply("a")
    connection.output("a")
    assert (connection.forwarded, manager.busy) == ([("stream", "a")], True)
    connection.idle("a")
    assert (connection.forwarded, manager.busy) == ([("stream", "a"), ("execute_reply", "a")], False)


def test_an_idle_status_may_arrive_before_the_reply(connection):
    for metadata in ({}, EARLY):
        connection.request("a")
        connection.idle("a")
        assert replies(connection) == []
        connection.reply("a", metadata)
        assert replies(connection) == ["a"]
        connection.forwarded.clear()


def test_a_reply_without_output_is_forwarded_at_once_and_the_rank_is_idle(connection, manager):
    connection.request("a")
    assert (manager.busy, connection.kernel_manager.execution_state) == (True, "busy")
    connection.reply("a", EARLY)
    assert (replies(connection), manager.busy, connection.kernel_manager.execution_state) == (["a"], False, "idle")


def test_a_late_idle_status_does_not_end_the_next_request(connection, manager):
    connection.request("a")
    connection.reply("a", EARLY)
    connection.request("b")
    connection.idle("a")
    assert (manager.busy, connection.kernel_manager.execution_state) == (True, "busy")
    connection.reply("b", EARLY)
    connection.idle("b")
    assert (replies(connection), manager.busy) == (["a", "b"], False)


def test_a_reply_without_output_does_not_overtake_earlier_output(connection, manager):
    for name in ("a", "b", "c"):
        connection.request(name)
    connection.reply("a")
    connection.reply("b", EARLY)
    connection.reply("c", EARLY)
    connection.output("a")
    assert replies(connection) == []
    connection.idle("a")
    assert connection.forwarded == [("stream", "a"), *(("execute_reply", name) for name in "abc")]
    connection.idle("b")
    connection.idle("c")
    assert (len(replies(connection)), manager.busy) == (3, False)


def test_a_reply_without_output_waits_behind_one_of_a_subshell(connection):
    connection.request("a", subshell_id="s")
    connection.request("b")
    connection.reply("a")
    connection.reply("b", EARLY)
    connection.idle("b")
    assert replies(connection) == ["b"]
    connection.idle("a")
    assert replies(connection) == ["b", "a"]


@pytest.mark.parametrize("metadata", [{}, EARLY])
def test_the_second_reply_of_an_interrupted_request_is_ignored(connection, metadata):
    connection.request("a")
    connection.reply("a", metadata)
    connection.reply("a")
    connection.idle("a")
    connection.reply("a")
    connection.request("b")
    connection.reply("b", EARLY)
    assert replies(connection) == ["a", "b"]


def test_the_parts_of_a_run_are_recorded_in_order_and_end_the_journal(connection, manager):
    for part in Part:
        connection.request(part, mark={"run": "r", "rank": 0, "part": part, "about": {}})
    connection.reply(Part.BEGIN, EARLY)
    connection.output(Part.CELL)
    connection.reply(Part.CELL)
    connection.reply(Part.END, EARLY)
    assert replies(connection) == [Part.BEGIN]
    connection.idle(Part.CELL)
    assert replies(connection) == [Part.BEGIN, Part.CELL, Part.END]
    journal = manager.journals.get("r", "rank")
    assert journal.completed
    assert manager.journals.active_runs == []


def run_of(connection, run):
    """Let the kernel execute a run, and return the journal."""
    for part in (Part.BEGIN, Part.END):
        connection.request(f"{run}-{part}", mark={"run": run, "rank": 0, "part": part, "about": {}})
        connection.reply(f"{run}-{part}", EARLY)
    return connection.multi_kernel_manager.journals.get(run, "rank")


async def test_an_end_is_unread_until_the_driver_answers_a_ping_behind_it(connection, manager):
    handler = connection.websocket_handler
    connection._watch_pongs()
    first, second = run_of(connection, "r"), run_of(connection, "s")
    [_, behind_second] = handler.pings
    # A pong may answer a ping that the server sent before the end of the run.
    handler.on_pong(b"")
    handler.on_pong(behind_second)
    assert handler.pongs == [b"", behind_second]
    assert (first.end_was_read, second.end_was_read) == (False, True)
    assert not manager.journals.has_unread_end
    connection.has_driver = False
    manager.journals.abandon(connection)
    await manager.journals.persist_all()
    # The laptop's network has failed before the end of run r, and the worker does not see the laptop's folder.
    assert manager.journals.has_unread_end
    handler.on_pong(handler.pings[0])
    assert not manager.journals.has_unread_end


def test_a_request_without_a_reply_stays_with_the_server_when_the_driver_leaves(connection, manager):
    connection.request("a")
    connection.reply("a", EARLY)
    connection.request("b")
    manager.transfer_to_server(connection)
    assert manager.busy
    header = {"msg_type": "execute_request", "msg_id": "b"}
    manager.note_status("rank", header, "idle")
    assert not manager.busy
