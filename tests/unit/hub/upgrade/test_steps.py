"""Tests for the steps of an upgrade: their order, and that a failure or a kill at any of them is harmless."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from hub.doctor.deployment import Deployment
from hub.upgrade.compose import UpgradeError
from hub.upgrade.steps import Upgrade
from spawner_config.labels import VERSION_LABEL

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "0.1.0", "0.2.0"
POSTGRES = "COMPOSE_PROFILES=postgres\nFARANDOLE_DATABASE=postgresql+psycopg://farandole:x@postgres/farandole\n"


class Killed(BaseException):
    """Raised in place of a kill: no code may handle it."""


class FakeHub:
    """A hub whose state and container have a version. Each action is recorded, and some of them fail.

    ``broken`` maps versions to the action that fails with this version.
    """

    def __init__(self, folder: Path, *, postgres: bool = False) -> None:
        self.folder = folder
        self.done: list[str] = []
        self.broken: dict[str, str] = {}
        self.killed_at = 0
        self.state = self.container = OLD
        self.running = True
        self.database = "old" if postgres else ""
        self.images = {f"farandole-{name}:{version}": version for name in ("hub", "notebook") for version in (OLD, NEW)}
        (folder / ".env").write_text(f"FARANDOLE_VERSION={OLD}\n{POSTGRES if postgres else ''}")

    @property
    def deployment(self) -> Deployment:
        return Deployment.read(self.folder, {})

    @property
    def has_postgres(self) -> bool:
        return bool(self.database)

    @property
    def version(self) -> str:
        """The version in `.env`."""
        return self.deployment.get("FARANDOLE_VERSION")

    def _do(self, action: str) -> None:
        self.done.append(action)
        if len(self.done) == self.killed_at:
            raise Killed
        if self.broken.get(self.version) == action:
            raise UpgradeError(f"{action} does not work")

    def label(self, name: str) -> str:
        return self.container if name == VERSION_LABEL else "unknown"

    def image_version(self, image: str) -> str | None:
        return self.images.get(image)

    def pull(self, image: str) -> bool:
        self._do(f"pull {image}")
        self.images[image] = image.rpartition(":")[2].removesuffix("-torch")
        return True

    def stop(self) -> None:
        self.running = False
        self._do("stop")

    def start(self, file: Path | None = None) -> None:
        version = self.version
        assert self.state in {version, OLD}, "an older version has got the state of a newer one"
        self.container, self.state, self.running = version, version, True
        if self.database and version == NEW:
            self.database = "new"
        self._do("start")

    def check_login(self) -> None:
        self._do("check_login")

    def undo_state(self, version: str) -> str:
        assert not self.running
        self._do("undo_state")
        if self.state == version:
            self.state = OLD
        return "undone"

    def schema(self) -> str:
        return self.database.partition(",")[0]

    def dump(self, target: Path) -> None:
        assert not self.running
        target.write_text(self.database)
        self._do("dump")

    def load(self, dump: Path) -> None:
        assert not self.running
        self.database = dump.read_text()
        self._do("load")


@pytest.fixture
def hub(tmp_path: Path) -> FakeHub:
    return FakeHub(tmp_path)


def upgrade(hub: Any, version: str = NEW, back_up: Any = None, **settings: str) -> list[str]:
    """Run an upgrade and return the lines that it prints."""
    lines: list[str] = []
    given = {"FARANDOLE_VERSION": version, **settings}
    Upgrade(hub=hub, settings=given, back_up=back_up or (lambda: hub.done.append("back_up")), say=lines.append).run()
    return lines


def assert_runs(hub: FakeHub, version: str) -> None:
    assert (hub.running, hub.version, hub.container, hub.state) == (True, version, version, version)
    if hub.database:
        assert hub.database == ("old" if version == OLD else "new")


def test_the_steps(hub: FakeHub) -> None:
    lines = upgrade(hub)
    assert hub.done == ["back_up", "stop", "start", "check_login"]
    assert_runs(hub, NEW)
    assert lines[0].endswith(f"from version {OLD} to {NEW}.")
    assert [line[:2] for line in lines if line[0].isdigit()] == ["1.", "2.", "3.", "5.", "6."]
    assert [line.split()[0] for line in lines if "missing" in line] == [
        f"farandole-serving:{NEW}",
        f"farandole-serving:{NEW}-torch",
    ]
    assert f"The hub has version {NEW}" in lines[-1]
    assert [path.name for path in hub.folder.iterdir() if path.is_dir()] == [f"upgraded-from-{OLD}"]


def test_postgresql_is_dumped_while_the_hub_is_stopped(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, postgres=True)
    upgrade(hub)
    assert hub.done == ["back_up", "stop", "dump", "start", "check_login"]
    assert (hub.folder / f"upgraded-from-{OLD}" / "old.sql").read_text() == "old"


@pytest.mark.parametrize("postgres", [False, True])
@pytest.mark.parametrize("action", ["start", "check_login"])
def test_a_failure_goes_back(tmp_path: Path, action: str, postgres: bool) -> None:
    hub = FakeHub(tmp_path, postgres=postgres)
    before = (hub.folder / ".env").read_text()
    hub.broken = {NEW: action}
    with pytest.raises(UpgradeError, match=f"not upgraded to version {NEW}"):
        upgrade(hub)
    assert_runs(hub, OLD)
    assert (hub.folder / ".env").read_text() == before
    assert [path.name for path in hub.folder.iterdir()] == [".env"]
    undo = hub.done[hub.done.index(action) + 1 :]
    assert undo == ["stop", *(["load"] if postgres else []), "undo_state", "start", "check_login"]


def test_a_failed_dump_starts_the_hub_again(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, postgres=True)
    hub.broken = {OLD: "dump"}
    with pytest.raises(UpgradeError):
        upgrade(hub)
    assert_runs(hub, OLD)
    assert "load" not in hub.done


def test_a_version_that_cannot_undo_its_changes_does_not_keep_the_hub_from_starting(hub: FakeHub) -> None:
    class Broken(FakeHub):
        def start(self, file: Path | None = None) -> None:
            if self.version == NEW:
                raise UpgradeError("the image has no Python")
            super().start(file)

    hub = Broken(hub.folder)
    hub.broken = {NEW: "undo_state"}
    with pytest.raises(UpgradeError, match="not upgraded"):
        upgrade(hub)
    assert_runs(hub, OLD)


def test_a_failure_on_the_way_back_is_named_and_can_be_repeated(hub: FakeHub) -> None:
    hub.broken = {NEW: "check_login", OLD: "start"}
    with pytest.raises(UpgradeError, match=rf"Going back failed, too: (.|\n)*make upgrade VERSION={OLD}"):
        upgrade(hub)
    hub.broken = {}
    assert "Going back" in upgrade(hub, OLD)[0]
    assert_runs(hub, OLD)


@pytest.mark.parametrize("again", [NEW, OLD], ids=["continue", "go back"])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("postgres", [False, True])
def test_a_killed_upgrade_continues_or_goes_back(tmp_path: Path, again: str, broken: bool, postgres: bool) -> None:
    moments = (8 if broken else 4) + postgres * (2 if broken else 1)
    for moment in range(1, moments + 1):
        (folder := tmp_path / str(moment)).mkdir()
        hub = FakeHub(folder, postgres=postgres)
        if broken:
            hub.broken = {NEW: "check_login"}
        hub.killed_at = moment
        with pytest.raises(Killed):
            upgrade(hub, back_up=lambda hub=hub: hub._do("back_up"))
        hub.broken, hub.killed_at = {}, 0
        # A hub that the engine or an operator starts meanwhile starts, too.
        hub.start()
        if again == OLD and moment == 1:
            # The upgrade had not begun, so there is nothing to go back from.
            continue
        with suppress(UpgradeError):
            upgrade(hub, again)
        assert_runs(hub, again)
        assert not (hub.folder / ".upgrade").exists()


def test_the_dump_has_what_the_old_version_wrote_after_an_interruption(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, postgres=True)
    hub.killed_at = 3
    with pytest.raises(Killed):
        upgrade(hub)
    assert hub.done[-1] == "dump"
    hub.start()
    hub.database = "old, with more users"
    hub.killed_at, hub.broken = 0, {NEW: "check_login"}
    with pytest.raises(UpgradeError):
        upgrade(hub)
    assert hub.database == "old, with more users"


def test_an_interrupted_upgrade_continues_with_the_same_images(hub: FakeHub) -> None:
    hub.images["farandole-hub@sha256:1"] = NEW
    hub.killed_at = 3
    with pytest.raises(Killed):
        upgrade(hub, FARANDOLE_HUB_IMAGE="farandole-hub@sha256:1")
    hub.killed_at = 0
    upgrade(hub)
    assert_runs(hub, NEW)
    assert hub.deployment.get("FARANDOLE_HUB_IMAGE") == "farandole-hub@sha256:1"


def test_another_upgrade_waits_for_the_interrupted_one(hub: FakeHub) -> None:
    hub.killed_at = 3
    with pytest.raises(Killed):
        upgrade(hub)
    with pytest.raises(UpgradeError, match=rf"Finish it first with `make upgrade VERSION={NEW}`, or go back .*{OLD}"):
        upgrade(hub, "0.3.0")


@pytest.mark.parametrize(
    ("env", "version", "settings", "message"),
    [
        ("", "", {}, "The version is ''"),
        ("", "new", {}, "The version is 'new'"),
        ("", OLD, {}, "has version 0.1.0 already"),
        ("", "0.0.9", {}, "is older.*make restore"),
        ("", "0.3.0", {}, "image farandole-hub:0.3.0 is not on this engine"),
        ("FARANDOLE_HUB_IMAGE=hub@sha256:1\n", NEW, {}, "FARANDOLE_HUB_IMAGE in .env .* SETTINGS=FILE"),
        ("FARANDOLE_DATABASE=postgresql+psycopg://a:b@db/x\n", NEW, {}, "a database of your own"),
        ("", NEW, {"FARANDOLE_HUB_IMAGE": "farandole-hub:0.1.0"}, "farandole-hub:0.1.0 has version 0.1.0"),
    ],
)
def test_an_upgrade_that_cannot_work_changes_nothing(
    hub: FakeHub, env: str, version: str, settings: dict[str, str], message: str
) -> None:
    with (hub.folder / ".env").open("a") as file:
        file.write(env)
    before = (hub.folder / ".env").read_text()
    with pytest.raises(UpgradeError, match=message):
        upgrade(hub, version, **settings)
    assert hub.done == []
    assert (hub.folder / ".env").read_text() == before
    assert [path.name for path in hub.folder.iterdir()] == [".env"]


def test_a_failed_backup_changes_nothing(hub: FakeHub) -> None:
    def fail() -> None:
        raise UpgradeError("no room")

    with pytest.raises(UpgradeError, match="no room"):
        upgrade(hub, back_up=fail)
    assert hub.done == []
    assert_runs(hub, OLD)


def test_images_of_a_registry_are_pulled_before_the_hub_is_stopped(hub: FakeHub) -> None:
    settings = {"FARANDOLE_REGISTRY": "registry.example.org/"}
    upgrade(hub, **settings)
    names = [f"registry.example.org/farandole-{name}:{NEW}" for name in ("hub", "notebook", "serving")]
    assert hub.done == [*(f"pull {name}" for name in names), f"pull {names[2]}-torch", "back_up", *hub.done[-3:]]
    assert hub.deployment.get("FARANDOLE_REGISTRY") == settings["FARANDOLE_REGISTRY"]


def test_without_env_the_remedy_is_that_for_a_hub_without_containers(hub: FakeHub) -> None:
    (hub.folder / ".env").unlink()
    with pytest.raises(UpgradeError, match=r"There is no .*\.env.*make up"):
        upgrade(hub)
