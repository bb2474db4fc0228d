"""Tests that the fake kernels of the scale benchmark answer a driver like real kernels."""

from __future__ import annotations

import ast
import json

import pytest
from farandole.driver.kernels import rank_calls
from farandole.protocol import COMM_TARGET
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

from bench.scale.standin import Kernel


def ask(kernel, kind="execute_request", channel="shell", **content):
    """Return the kernel's answers as (channel, type, content), and check that each answer refers to the request."""
    header = {"msg_id": "mine", "msg_type": kind, "date": "2026-01-01T00:00:00Z"}
    content = {"code": "", "user_expressions": {}} | content
    frame = serialize_msg_to_ws_v1([json.dumps(part).encode() for part in (header, {}, {}, content)], channel)
    answers = []
    for answer in kernel.answer(frame):
        where, parts = deserialize_msg_from_ws_v1(answer)
        head, parent, _, said = (json.loads(part) for part in parts)
        assert parent["msg_id"] == "mine"
        answers.append((where, head["msg_type"], said))
    return answers


def evaluate(kernel, call):
    *_, (_, kind, reply) = ask(kernel, user_expressions={"value": call.expression})
    assert (kind, reply["status"]) == ("execute_reply", "ok")
    return json.loads(ast.literal_eval(reply["user_expressions"]["value"]["data"]["text/plain"]))


def test_a_cell_is_executed_and_its_output_comes_before_its_reply():
    kernel = Kernel("w", rank=7)
    assert ask(kernel, code='print(f"I am rank {rank}")') == [
        ("iopub", "status", {"execution_state": "busy"}),
        ("iopub", "stream", {"name": "stdout", "text": "I am rank 7\n"}),
        ("iopub", "status", {"execution_state": "idle"}),
        ("shell", "execute_reply", {"status": "ok", "user_expressions": {}}),
    ]


def test_a_rank_learns_its_number_when_its_world_is_formed():
    kernel = Kernel("w")
    assert evaluate(kernel, rank_calls.form({"FARANDOLE_RANK": "3", "FARANDOLE_SIZE": "8"})) is None
    assert (kernel.rank, kernel.size) == (3, 8)


@pytest.mark.parametrize(
    ("call", "value"),
    [(rank_calls.identity(), {}), (rank_calls.preload("torch"), {"packages": {}, "data_sets": {}})],
)
def test_a_call_of_the_driver_returns_a_value(call, value):
    assert evaluate(Kernel("w"), call) == value


def test_records_are_sent_once_with_the_runs_id():
    kernel = Kernel("w", rank=2)
    begin = rank_calls.begin("a-run", "/folder").expression
    assert [kind for _, kind, _ in ask(kernel, code=begin)][-1] == "execute_reply"
    [(_, _, said)] = [one for one in ask(kernel, code="report(loss=0.5)\nresult(rank)") if one[1] == "comm_msg"]
    assert said["comm_id"] == COMM_TARGET
    assert (said["data"]["run"], said["data"]["rank"]) == ("a-run", 2)
    report, result = said["data"]["records"]
    assert (report["kind"], report["rank"], report["values"]) == ("report", 2, {"loss": 0.5})
    assert result == {"kind": "result", "value": 2}
    assert "comm_msg" not in [kind for _, kind, _ in ask(kernel, code="pass")]


def test_other_requests_are_answered_on_their_channel():
    assert ask(Kernel("w"), kind="kernel_info_request", channel="control") == [
        ("control", "kernel_info_reply", {"status": "ok"})
    ]
