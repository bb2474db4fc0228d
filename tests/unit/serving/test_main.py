"""The process of an endpoint ends when it is told to, and when it can no longer score records."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from farandole.models.store import ModelStore

from hub.process import wait_until
from spawner_config.local import SERVING_PYTHON, free_port
from tests.brokers import RunningBroker, run_broker
from tests.models import save_sum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 120
GRACE_SECONDS = 10
MAIN = "import farandole.serving.__main__ as module; module.main()"
BEGUN = """
from farandole.serving.streams.consumer import Consumer
async def begun(self):
    pass
Consumer.begun = begun
"""
"""Code that keeps an endpoint from waiting for the streams of a consumer that is replaced."""
FAILS = f"""
{BEGUN}
async def fail(self, log):
    await log.seek()
    raise LookupError("an error that nobody has expected")
Consumer._follow = fail
{MAIN}
"""
LEAVES = f"""
import asyncio, os
{BEGUN}
async def leave(self):
    try:
        await asyncio.Event().wait()
    finally:
        os.write(1, b"the consumer has left")
Consumer.run = leave
{MAIN}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    """A store with a model."""
    store = ModelStore(tmp_path_factory.mktemp("models"))
    save_sum(store)
    return store


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A NATS server, with a log of its connections."""
    with run_broker(tmp_path, "nats") as running:
        yield running


@contextmanager
def endpoint(
    store: ModelStore, log: Path, *words: str, main: str = MAIN
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start an endpoint without a hub, and yield its process and its port."""
    port = free_port()
    own = {"JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}/", "FARANDOLE_MODELS": str(store.folder)}
    command = [str(SERVING_PYTHON), "-c", main, "--no-login", "small:1", *words]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env={**os.environ, **own}, stdout=output, stderr=output) as process,
    ):
        try:
            yield process, port
        finally:
            process.kill()


def status(port: int) -> dict[str, object]:
    """Return the status of an endpoint, or an empty dict if it does not answer yet."""
    try:
        return dict(httpx.get(f"http://127.0.0.1:{port}/farandole/status").json())
    except httpx.TransportError:
        return {}


def words(broker: RunningBroker) -> tuple[str, str]:
    return f"--from={broker.url}/calls", f"--to={broker.url}/decisions"


@pytest.mark.parametrize("streams", [True, pytest.param(False, marks=pytest.mark.release)])
def test_a_signal_ends_the_process_without_an_alarming_log(
    store: ModelStore, broker: RunningBroker, tmp_path: Path, *, streams: bool
) -> None:
    with endpoint(store, log := tmp_path / "endpoint", *(words(broker) if streams else ())) as (process, port):
        wait_until(lambda: status(port) or process.poll() is not None, START_SECONDS)
        process.terminate()
        assert process.wait(GRACE_SECONDS) == -signal.SIGTERM, log.read_text()
    assert [word for word in ("Traceback", "Error", "exception", "ancel", "never") if word in log.read_text()] == []


def test_a_signal_cancels_the_consumer_so_that_it_leaves_its_broker(
    store: ModelStore, broker: RunningBroker, tmp_path: Path
) -> None:
    with endpoint(store, log := tmp_path / "endpoint", *words(broker), main=LEAVES) as (process, port):
        wait_until(lambda: status(port) or process.poll() is not None, START_SECONDS)
        process.terminate()
        process.wait(GRACE_SECONDS)
    assert "the consumer has left" in log.read_text()


def test_an_error_that_ends_the_consumer_ends_the_process(
    store: ModelStore, broker: RunningBroker, tmp_path: Path
) -> None:
    with endpoint(store, log := tmp_path / "endpoint", *words(broker), main=FAILS) as (process, _):
        assert process.wait(START_SECONDS) == 1, log.read_text()
    assert "Traceback" in log.read_text()
    assert "LookupError: an error that nobody has expected" in log.read_text()


@pytest.mark.parametrize("content", ["ada:secret", pytest.param("", marks=pytest.mark.release)])
def test_a_wrong_file_of_credentials_ends_the_process_with_the_remedy(
    store: ModelStore, broker: RunningBroker, tmp_path: Path, content: str
) -> None:
    (file := tmp_path / "login.txt").write_text(content)
    with endpoint(store, log := tmp_path / "endpoint", *words(broker), f"--credentials={file}") as (process, _):
        assert process.wait(START_SECONDS) == 1
    assert f"StreamError: {file} is not a file of NATS credentials (.creds)" in log.read_text()
    assert "secret" not in log.read_text()
