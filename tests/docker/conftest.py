"""For the tests of a session: one hub in containers (those that break it run their own), and an engine with GPUs."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from images.names import NOTEBOOK, version
from spawner_config.local import free_port
from spawner_config.settings import ROOT
from tests.browser.lab import shoot_failure
from tests.docker.engines import gpus
from tests.docker.stack import Stack, docker, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.engines.second import SecondEngine

PROFILES = Path(__file__).with_name("small.toml")


@pytest.fixture(scope="session")
def data_set() -> Iterator[str]:
    """A volume with a data set, as an administrator makes and fills one."""
    volume = f"farandole-test-data-{secrets.token_hex(3)}"
    fill = "echo 42 >/to/answer.txt"
    docker("run", "--rm", "--user=0", "--volume", f"{volume}:/to", NOTEBOOK.tag(version()), "sh", "-c", fill)
    yield volume
    docker("volume", "rm", volume)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, data_set: str) -> Iterator[Stack]:
    settings = {
        "FARANDOLE_ALLOWED_IMAGES": "farandole-notebook*,127.0.0.1:1/farandole-notebook*",
        "FARANDOLE_SHARED_VOLUMES": f"{data_set}:/data/answers",
        "FARANDOLE_GROUP_FOLDERS": "vision: ada grace, nlp",
    }
    with running(tmp_path_factory.mktemp("stack"), subnets="10.214.0.0/20", **settings) as stack:
        yield stack


@pytest.fixture(scope="session")
def small_stack(stack: Stack) -> Stack:
    """The same one, with more profiles and a smaller limit of workers, given as the README says."""
    profiles = (ROOT / "hub" / "profiles.toml").read_text()
    limited = profiles.replace("workers_per_user = 16", "workers_per_user = 4")
    assert limited != profiles
    (stack.folder / "profiles.toml").write_text(f"{limited}\n{PROFILES.read_text()}")
    stack.compose("cp", "profiles.toml", "hub:/srv/farandole/")
    stack.compose("restart", "hub")
    stack.wait_ready()
    return stack


@pytest.fixture(scope="session")
def closed_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A second one, where accounts wait for approval and nobody reaches the internet."""
    settings = {
        "FARANDOLE_SIGNUP": "approval",
        "FARANDOLE_INTERNET": "no",
        "FARANDOLE_TLS_BIND": "127.0.0.1",
        "FARANDOLE_TLS_PORT": str(free_port()),
    }
    with running(tmp_path_factory.mktemp("closed"), subnets="10.214.16.0/20", **settings) as stack:
        yield stack


@pytest.fixture(scope="session")
def gpu_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    """An engine that gives two stand-in GPUs, 0 and 1."""
    with gpus.gpu_engine(tmp_path_factory.mktemp("gpus")) as engine:
        yield engine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    stacks = dict.fromkeys(("stack", "closed_stack", "gpu_stack"), "containers")
    for name, title in {**stacks, "gpu_engine": "engine with GPUs"}.items():
        found = getattr(item, "funcargs", {}).get(name)
        if report.failed and found is not None:
            report.sections.append((title, found.logs()))
    shoot_failure(item, report)
    return report
