"""Fixtures that the Docker tests share: hubs in containers, and an engine with GPUs.

A test that breaks a hub starts its own hub.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from farandole.datasets.versions.names import DataVersion
from farandole.models.store import ModelStore
from farandole.registry.publish import publish
from farandole.registry.reference import parse_reference

from images.names import NOTEBOOK, SERVING, version
from spawner_config.settings import ROOT
from tests.browser.lab import shoot_failure
from tests.docker import registry
from tests.docker.engines import first, gpus
from tests.docker.engines.janitor import alone
from tests.docker.engines.swarm import REGISTRY
from tests.docker.ports import HTTPS, quiet_port
from tests.docker.stack import Stack, docker, running
from tests.failures import attach
from tests.full_homes import SIZE
from tests.hub import LIMITED_USER
from tests.models import save_sum
from tests.variables import with_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farandole.models.model import ModelInfo
    from farandole.registry.publish import Published

    from tests.docker.engines.second import SecondEngine
    from tests.docker.registry import Registry

PROFILES = Path(__file__).with_name("small.toml")
MODEL = "small"
MIRROR = "/tmp/mirror"
"""The folder of the hub's mirror in its container. It does not exist when the hub starts."""
WORKERS = 4
"""The number of workers that each user may have on the hub of the fixture `stack`."""
TIMEOUT_SECONDS = 900
"""Time limit for a test in seconds. It includes starting an engine or a hub if the test is the first to use it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(PROFILES.parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def engine_alone() -> Iterator[None]:
    """Reserve this machine's engine for one session at a time, and remove what killed sessions have left there."""
    first.check_local()
    with alone():
        yield


@pytest.fixture(scope="session")
def data_set() -> Iterator[str]:
    """Yield the name of a volume that contains a data set, created as an administrator would create it."""
    volume = f"farandole-test-data-{secrets.token_hex(3)}"
    fill = "echo 42 >/to/answer.txt"
    docker("run", "--rm", "--user=0", "--volume", f"{volume}:/to", NOTEBOOK.tag(version()), "sh", "-c", fill)
    yield volume
    docker("volume", "rm", volume)


@pytest.fixture(scope="session")
def data_version(data_set: str) -> Iterator[tuple[DataVersion, str]]:
    """Yield a version of a data set in a volume, created as docs/how-to/data-sets.md describes, and its digest."""
    made = DataVersion(name=data_set, number=2)
    mounts = ("--volume", f"{data_set}:/from:ro", "--volume", f"{made.volume}:/to")
    copy = ("-m", "farandole.datasets.versions", "copy", "/from", "/to")
    said = docker("run", "--rm", "--user=root", "--entrypoint=python", *mounts, NOTEBOOK.tag(version()), *copy)
    yield made, said.strip()
    docker("volume", "rm", made.volume)


@pytest.fixture(scope="session")
def model_registry() -> Iterator[Registry]:
    """Run a registry that has the serving image. The engines of the swarm reach it, too."""
    with registry.address_in(REGISTRY) as address, registry.running(address) as found:
        found.push(SERVING)
        yield found


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelInfo:
    """Save a model with the name `MODEL`, which returns the sum of four numbers."""
    return save_sum(ModelStore(tmp_path_factory.mktemp("models")), MODEL)


@pytest.fixture(scope="session")
def published(model_registry: Registry, model: ModelInfo) -> Published:
    """Publish the model."""
    return publish(model, parse_reference(f"{model_registry.here}/lab/{MODEL}"), model_registry.serving)


@pytest.fixture(scope="session")
def stack(
    tmp_path_factory: pytest.TempPathFactory, data_set: str, data_version: tuple[DataVersion, str]
) -> Iterator[Stack]:
    """Run a hub that has additional profiles and allows each user `WORKERS` workers."""
    settings = {
        "FARANDOLE_ALLOWED_IMAGES": "farandole-notebook*,farandole-serving*,127.0.0.1:1/farandole-notebook*",
        "FARANDOLE_MODEL_IMAGES": "127.0.0.1:*/lab/*",
        "FARANDOLE_SHARED_VOLUMES": f"{data_set}:/data/answers,{data_version[0]}:/data/version",
        "FARANDOLE_GROUP_FOLDERS": "vision: ada grace, nlp",
        "FARANDOLE_DATA_PUBLISHERS": "ada",
        "COMPOSE_PROFILES": "streams",
        "FARANDOLE_STREAMS_SECRET": secrets.token_hex(32),
        "FARANDOLE_SNAPSHOTS_MIRROR": MIRROR,
        "FARANDOLE_HOME_SIZE": f"{LIMITED_USER}: {SIZE}",
    }
    with running(tmp_path_factory.mktemp("stack"), subnets="10.214.0.0/20", **settings) as stack:
        give_profiles(stack, f"{limited_profiles()}\n{PROFILES.read_text()}")
        yield stack


def limited_profiles() -> str:
    """Return the repository's profiles, but with a limit of `WORKERS` workers for each user."""
    profiles = (ROOT / "hub" / "profiles.toml").read_text()
    limited = profiles.replace("workers_per_user = 16", f"workers_per_user = {WORKERS}")
    assert limited != profiles
    return with_variables(limited)


def give_profiles(stack: Stack, text: str) -> None:
    """Install the profiles as docs/how-to/profiles.md describes."""
    (stack.folder / "profiles.toml").write_text(text)
    stack.compose("cp", "profiles.toml", "hub:/srv/farandole/")
    stack.compose("restart", "hub")
    stack.wait_ready()


@pytest.fixture(scope="session")
def closed_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run a second hub, on which accounts need approval and containers have no internet access."""
    settings = {
        "FARANDOLE_SIGNUP": "approval",
        "FARANDOLE_INTERNET": "no",
        "FARANDOLE_TLS_BIND": "127.0.0.1",
        "FARANDOLE_TLS_PORT": str(quiet_port(HTTPS)),
    }
    with running(tmp_path_factory.mktemp("closed"), subnets="10.214.16.0/20", **settings) as stack:
        yield stack


@pytest.fixture(scope="session")
def gpu_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    """Run an engine with two stand-in GPUs, whose ids are 0 and 1."""
    with gpus.gpu_engine(tmp_path_factory.mktemp("gpus")) as engine:
        yield engine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    stacks = dict.fromkeys(("stack", "closed_stack", "gpu_stack", "swarm_stack", "quota_stack"), "containers")
    for name, title in {**stacks, "gpu_engine": "engine with GPUs"}.items():
        found = getattr(item, "funcargs", {}).get(name)
        if report.failed and found is not None:
            attach(report, title, found.logs)
    shoot_failure(item, report)
    return report
