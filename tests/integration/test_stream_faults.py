"""Streams while endpoints and brokers are killed, and while the broker has no space left."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from farandole.ranks.models.save import save_model
from nats.js.api import StreamConfig
from torch import nn

from bench.streams.soak import NatsFeed, Scoring, outcome, scoring, soak
from hub.process import wait_until
from tests.brokers import run_broker
from tests.chaos.volume import Volume

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0
SEED = 21
RECORD = b'{"input": [1, 2, 3, 4]}'
RECORDS = 20
MEBIBYTE = bytes(2**20 - 1000)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model store with one model."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("FARANDOLE_MODELS", str(folder))
    save_model(nn.Linear(4, 2), "soak", example=torch.ones(3, 4), onnx=True)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scheme", "kills"),
    [("nats", 5), *(pytest.param(one, 100, marks=pytest.mark.release) for one in ("nats", "redis"))],
)
async def test_no_record_is_lost_or_scored_twice(tmp_path: Path, models: Path, scheme: str, kills: int) -> None:
    """Two endpoints score the same records. The NATS server forgets recent messages before killed ones are back."""
    folder = tmp_path / scheme
    folder.mkdir()
    found = await soak(folder, models, "soak:1", scheme=scheme, kills=kills, seed=SEED)
    assert (found.lost, found.twice, found.disordered) == (0, 0, 0), found
    assert found.records > 20 * kills
    assert found.killed.total() == kills


def says(endpoint: Scoring, text: str) -> None:
    """Wait until the status of an endpoint reports a problem that contains a text, or no problem if it is empty."""

    def is_named() -> bool:
        problem = endpoint.status().get("problem")
        return problem is not None and (text in problem if text else not problem)

    wait_until(is_named, SECONDS)


async def test_a_broker_without_space_is_named_and_nothing_is_lost(tmp_path: Path, models: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    with run_broker(folder, "nats", most_bytes=3 * 2**20) as broker:
        feed = NatsFeed(broker.url)
        await feed.prepare()
        for number in range(RECORDS):
            assert await feed.send(RECORD, f"record-{number}")
        await (await feed.connected()).jetstream().add_stream(StreamConfig(name="ballast", subjects=["ballast"]))
        while await feed.send(MEBIBYTE, "ballast", "ballast"):
            pass
        with scoring(broker, models, "soak:1") as endpoint:
            says(endpoint, "refuses: insufficient")
            await (await feed.connected()).jetstream().delete_stream("ballast")
            found = await outcome(feed, Counter())
            assert (found.records, found.lost, found.twice, found.disordered) == (RECORDS, 0, 0, 0)
            says(endpoint, "")


@pytest.mark.release
async def test_a_full_disk_of_the_broker_loses_nothing(tmp_path: Path, models: Path) -> None:
    """Needs root, to mount a small file system. NATS stops storing until it is started again."""
    with Volume.open(tmp_path / "small") as volume:
        assert volume.small
        with run_broker(volume.folder, "nats") as broker, scoring(broker, models, "soak:1"):
            feed = NatsFeed(broker.url)
            await feed.prepare()
            for number in range(RECORDS):
                assert await feed.send(RECORD, f"record-{number}")
            volume.fill(0)
            number = RECORDS
            while await feed.send(RECORD, f"record-{number}"):
                number += 1
            volume.free()
            broker.kill()
            broker.start()
            assert await feed.send(RECORD, "last")
            found = await outcome(feed, Counter())
        assert (found.lost, found.twice, found.disordered) == (0, 0, 0)
        assert found.records == number + 1
