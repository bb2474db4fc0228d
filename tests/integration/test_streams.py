"""Streams on a real hub: an endpoint scores the records that a notebook sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from farandole import Endpoint

from hub.process import wait_until
from tests.clients.kernel import CellError, RemoteKernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

USER = "rosalind"
SECONDS = 90.0
SAVE = """
%load_ext farandole
import json, torch, farandole as fd
model = torch.nn.Linear(2, 2, bias=False)
model.weight.data = torch.eye(2)
for version in range(2):
    fd.save_model(model, "routes", example={"input": torch.ones(3, 2)}, labels=["sales", "support"], onnx=True)
fd.save_model(torch.nn.Linear(2, 1), "price", example=torch.ones(3, 2), onnx=True)
"""
SERVE = "%serve routes:1 --from calls --to decisions.{label}"
CONNECT = """
client = await fd.streams.connect()
stream = client.jetstream()

async def send(*records):
    for record in records:
        await stream.publish("calls", record if isinstance(record, bytes) else json.dumps(record).encode())

async def show(subject, count):
    reader = await stream.subscribe(subject, stream="decisions", ordered_consumer=True)
    for _ in range(count):
        record = await reader.next_msg(timeout=30)
        print(record.subject, record.data.decode(), record.headers["Farandole-Model"])
    await reader.unsubscribe()
"""


@pytest.fixture(scope="module")
def kernel(hub: RunningHub) -> Iterator[RemoteKernel]:
    """A notebook with two versions of a model, the first of which scores the records of the subject calls."""
    address = hub.start_notebook(USER)
    with RemoteKernel(address, hub.browser(USER).make_token(), "streams.ipynb") as kernel:
        kernel.execute(SAVE, deadline=SECONDS)
        kernel.execute("%serve price:1", deadline=SECONDS)
        kernel.execute(SERVE, deadline=SECONDS)
        kernel.execute(CONNECT, deadline=SECONDS)
        yield kernel
        kernel.execute("%serve stop routes\n%serve stop price", deadline=SECONDS)


def run(kernel: RemoteKernel, code: str) -> str:
    return kernel.execute(code, deadline=SECONDS)


def test_records_are_scored_and_go_to_the_subject_of_their_label(kernel: RemoteKernel) -> None:
    run(kernel, 'await send({"input": [2, 1], "id": 1}, {"input": [1, 2], "id": 2}, {"input": [3, 2], "id": 3})')
    assert run(kernel, 'await show("decisions.sales", 2)').splitlines() == [
        'decisions.sales {"id": 1, "output": [2.0, 1.0], "label": "sales"} routes:1',
        'decisions.sales {"id": 3, "output": [3.0, 2.0], "label": "sales"} routes:1',
    ]
    assert run(kernel, 'await show("decisions.support", 1)').splitlines() == [
        'decisions.support {"id": 2, "output": [1.0, 2.0], "label": "support"} routes:1',
    ]


def test_a_record_that_cannot_be_scored_is_a_dead_letter_and_the_list_counts_it(kernel: RemoteKernel) -> None:
    run(kernel, 'await send(b"nope")')
    assert run(kernel, 'await show("dead-letter.decisions", 1)') == "dead-letter.decisions nope routes:1\n"
    listed = run(kernel, "%serve list")
    header, routes = listed.splitlines()[0], next(line for line in listed.splitlines() if "routes" in line)
    assert [one for one in ("from", "to", "lag", "dead letters") if one not in header] == []
    assert "decisions.{label}" in routes


def test_a_switch_scores_further_records_with_the_other_version(kernel: RemoteKernel) -> None:
    run(kernel, "%serve routes:2")
    run(kernel, 'await send({"input": [1, 9], "id": 4})')
    assert run(kernel, 'await show("decisions.support", 2)').splitlines()[-1].endswith('"label": "support"} routes:2')


def test_an_endpoint_that_is_started_again_continues_where_the_records_have_outputs(kernel: RemoteKernel) -> None:
    run(kernel, "%serve stop routes")
    run(kernel, 'await send({"input": [9, 1], "id": 5}, {"input": [1, 9], "id": 6})')
    run(kernel, SERVE)
    found = run(kernel, 'await show("decisions.*", 6)').splitlines()
    assert [line.split('"id": ')[1].split(",")[0] for line in found] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%serve routes:1 --name other --from calls", "a stream needs both `--from` and `--to`"),
        ("%serve routes:1 --name other --from 'my calls' --to decisions", "is not a subject of NATS"),
        ("%serve routes:1 --name other --from calls.> --to calls.{label}", "would be scored again"),
        ("%serve routes:1 --from calls --to others", "switching its version does not change its server; leave out"),
        ("%serve --command 'python app.py' --name app --from calls --to decisions", "a command does not score records"),
        ("%serve routes:1 --name other --from calls --to x --credentials /etc/passwd", "is not a file in your home"),
        ("%serve routes:1 --name other --from redis:///a --to redis:///b", "names no server; write redis://HOST:PORT"),
        ("%serve list --from calls", "`%serve list` has no option --from"),
    ],
)
def test_a_wrong_stream_starts_nothing(kernel: RemoteKernel, hub: RunningHub, line: str, message: str) -> None:
    with pytest.raises(CellError) as caught:
        run(kernel, line)
    assert message in str(caught.value)
    assert {one.name for one in Endpoint.all(hub_url=hub.url, token=hub.token_for(USER))} == {"routes", "price"}


def test_a_model_without_classes_cannot_fill_in_the_label(kernel: RemoteKernel) -> None:
    with pytest.raises(CellError, match="price:1 gives no label"):
        run(kernel, "%serve price:1 --name other --from calls --to prices.{label}")


def test_a_broker_that_is_away_at_the_start_is_named_and_used_when_it_comes(kernel: RemoteKernel) -> None:
    line = "%serve price:1 --name away --from nats://127.0.0.1:1/calls --to nats://127.0.0.1:1/prices"
    run(kernel, line)

    def is_named() -> bool:
        return "nats://127.0.0.1:1 is not available" in run(kernel, "%serve list")

    wait_until(is_named, SECONDS)
    run(kernel, "%serve stop away")
