"""A test session removes what killed sessions have left behind. These tests use a separate engine."""

from __future__ import annotations

import os
import signal
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docker.engines import janitor, second
from tests.docker.engines.base_image import NAME as IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

SLEEP = ("run", "--detach", "--restart=unless-stopped")


@pytest.fixture
def engine() -> Iterator[second.SecondEngine]:
    engine = second.SecondEngine(
        name="farandole-k", cable=IPv4Network("10.218.255.0/30"), containers=IPv4Network("10.218.0.0/24")
    )
    with second.running(engine):
        engine.copy(IMAGE)
        yield engine


def processes(word: str) -> list[int]:
    """Return the ids of the processes whose command lines contain ``word``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word.encode() in command:
            found.append(int(process.name))
    return found


def test_an_engine_without_daemons_is_removed_with_its_containers(engine: second.SecondEngine) -> None:
    engine.docker(*SLEEP, IMAGE, "sleep", "6543210")
    assert processes("6543210")
    for name in ("dockerd", "containerd"):
        os.kill(int((engine.folder / f"{name}.started").read_text()), signal.SIGKILL)
    engine.down()
    assert processes("6543210") == processes(str(engine.folder)) == []
    assert not engine.folder.exists()
    assert list(Path("/sys/fs/cgroup").glob(f"*/{engine.name}")) == []


def test_only_objects_with_names_of_tests_are_removed(
    engine: second.SecondEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"{janitor.PREFIX}left"
    for name in (ours, "somebodys"):
        engine.docker("network", "create", name)
        engine.docker(*SLEEP, f"--name={name}", f"--network={name}", f"--volume={name}:/data", IMAGE, "sleep", "600")
    engine.docker(*SLEEP, f"--label=farandole.hub={ours}", f"--network={ours}", IMAGE, "sleep", "600")
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    janitor.sweep()
    assert engine.docker("ps", "--all", "--format", "{{.Names}}").split() == ["somebodys"]
    assert engine.docker("volume", "ls", "--format", "{{.Name}}").split() == ["somebodys"]
    networks = engine.docker("network", "ls", "--format", "{{.Name}}").split()
    assert sorted(networks) == ["bridge", "host", "none", "somebodys"]
