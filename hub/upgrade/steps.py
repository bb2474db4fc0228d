"""The steps of an upgrade, and the way back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hub.doctor.deployment import ENV_FILE, SERVING, Deployment
from hub.upgrade.compose import REVISION_LABEL, UpgradeError
from hub.upgrade.env_file import replace_text, with_settings
from hub.upgrade.journal import VERSION_SETTING, Journal
from spawner_config.labels import VERSION_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hub.upgrade.compose import ComposeHub

IMAGE_SETTINGS = (
    "FARANDOLE_HUB_IMAGE",
    "FARANDOLE_NOTEBOOK_IMAGE",
    "FARANDOLE_GPU_IMAGE",
    "FARANDOLE_SERVING_IMAGE",
    "FARANDOLE_SERVING_TORCH_IMAGE",
)
"""The settings that name images, with the digests that `make publish` prints."""
PUBLISHED = ("FARANDOLE_REGISTRY", VERSION_SETTING, *IMAGE_SETTINGS)
VERSION = re.compile(r"\d+(\.\d+)*([a-z][a-z0-9.]*)?")


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """An upgrade of a hub to the version in ``settings``, which are the changes in `.env`.

    ``back_up`` backs up the hub, and ``say`` prints a line. The order of the steps makes a kill at any moment harmless:

    - `.env` changes before the state. The hub of the new version can use the state of both versions.
    - On the way back, the state changes before `.env`.
    """

    hub: ComposeHub
    settings: Mapping[str, str]
    back_up: Callable[[], None]
    say: Callable[[str], None] = print

    @property
    def version(self) -> str:
        """The new version."""
        return self.settings[VERSION_SETTING]

    def run(self) -> None:
        """Upgrade the hub; raises `UpgradeError` if that fails, after it has gone back."""
        self._check_settings()
        journal = Journal.read(self.hub.folder)
        if journal and journal.before == self.version:
            self.say(f"The upgrade to version {journal.to} was interrupted. Going back to version {journal.before} ...")
            self._go_back(journal)
            return
        if journal and journal.to != self.version:
            raise UpgradeError(
                f"The upgrade from version {journal.before} to {journal.to} was interrupted. Finish it first with "
                f"`make upgrade VERSION={journal.to}`, or go back with `make upgrade VERSION={journal.before}`."
            )
        if journal:
            self.say(f"The upgrade to version {journal.to} was interrupted. It continues.")
        self._change(journal or self._prepare())

    def _prepare(self) -> Journal:
        """Check that the upgrade can begin, get the images and back up. The hub continues to run."""
        before = self.hub.label(VERSION_LABEL)
        self._check_version(before)
        self._check_database()
        self.say(f"Upgrading the hub in {self.hub.folder} from version {before} to {self.version}.")
        self.say("1. Get the images")
        self._get_images()
        self.say("2. Back up the hub")
        self.back_up()
        return Journal.begin(self.hub.folder, before, self.settings, self.hub.label(REVISION_LABEL))

    def _change(self, journal: Journal) -> None:
        try:
            self._steps(journal)
        except (UpgradeError, OSError, KeyboardInterrupt) as exc:
            why = "It was interrupted." if isinstance(exc, KeyboardInterrupt) else str(exc)
            self.say(f"The upgrade failed. {why}\nGoing back to version {journal.before} ...")
            self._go_back(journal)
            raise UpgradeError(f"The hub was not upgraded to version {self.version}; the reason is above.") from exc
        kept = journal.finish()
        self.say(
            f"The hub has version {self.version}. Ask users to restart their servers. {kept} has the settings of "
            "before; delete it when you are sure that you do not need them."
        )

    def _steps(self, journal: Journal) -> None:
        self.say("3. Stop the hub; users' servers continue")
        self.hub.stop()
        env = self.hub.folder / ENV_FILE
        # After an interruption, the old version may have run, and have changed the database since the last dump.
        is_old = env.read_text(encoding="utf-8") == journal.env
        if self.hub.has_postgres and (is_old or not journal.dump):
            self.say("4. Dump the database")
            self.hub.dump(journal.folder / f"{self.hub.schema() or 'empty'}.sql")
        self.say("5. Start the new version, which upgrades the database")
        replace_text(env, with_settings(journal.env, journal.settings))
        self.hub.start()
        self.say("6. Check the login page")
        self.hub.check_login()

    def _go_back(self, journal: Journal) -> None:
        try:
            self.hub.stop()
            if journal.dump and self.hub.schema() != journal.dump.stem:
                self.hub.load(journal.dump)
            self._undo_state(journal)
            replace_text(self.hub.folder / ENV_FILE, journal.env)
            self.hub.start(journal.compose_file)
            self.hub.check_login()
        except (UpgradeError, OSError) as exc:
            raise UpgradeError(
                f"Going back failed, too: {exc}\n{journal.folder} has the files of before. Solve the problem, then run "
                f"`make upgrade VERSION={journal.before}` again."
            ) from exc
        journal.remove()
        self.say(f"The hub runs with version {journal.before} again, and its users have what they had.")

    def _undo_state(self, journal: Journal) -> None:
        try:
            self.say(self.hub.undo_state(journal.to).strip())
        except UpgradeError as exc:
            # A version whose image cannot run this command has probably not changed the state either.
            self.say(f"Version {journal.to} cannot undo its changes of the state. {exc}")

    def _check_settings(self) -> None:
        if not VERSION.fullmatch(self.version):
            raise UpgradeError(f"The version is {self.version!r}. Name it as in: make upgrade VERSION=0.2.0 TO=PLACE")
        deployment = self.hub.deployment
        if deployment.file is None:
            raise UpgradeError(
                f"There is no {self.hub.folder / ENV_FILE}, so there is no hub in containers to upgrade. Without "
                "containers, stop `make up`, update the checkout and start it again."
            )
        if fixed := [key for key in PUBLISHED if key in deployment.environ]:
            raise UpgradeError(f"The environment sets {', '.join(fixed)}, which overrides {ENV_FILE}. Unset it.")
        pinned = [key for key in IMAGE_SETTINGS if deployment.get(key) and key not in self.settings]
        if pinned and not Journal.read(self.hub.folder):
            raise UpgradeError(
                f"{', '.join(pinned)} in {ENV_FILE} would still name the old images. Write the lines that `make "
                "publish` printed for the new version into a file, and add SETTINGS=FILE to the command."
            )

    def _check_version(self, before: str) -> None:
        if before == self.version:
            raise UpgradeError(
                f"The hub has version {before} already. For its newest images run `docker compose up -d --wait`."
            )
        if _numbers(self.version) < _numbers(before):
            raise UpgradeError(
                f"The hub has version {before}, and version {self.version} is older: it cannot read the newer state. "
                "Restore the backup from before the upgrade (`make restore`)."
            )

    def _check_database(self) -> None:
        url = self.hub.deployment.get("FARANDOLE_DATABASE")
        if url and not url.startswith("sqlite") and not self.hub.has_postgres:
            raise UpgradeError(
                "FARANDOLE_DATABASE is a database of your own, which this command can neither dump nor restore. Dump "
                f"it, set {VERSION_SETTING}={self.version} in {ENV_FILE}, and run `docker compose up -d --wait`."
            )

    def _get_images(self) -> None:
        deployment = self.hub.deployment
        changed = Deployment(
            folder=deployment.folder, file={**(deployment.file or {}), **self.settings}, environ=deployment.environ
        )
        for kind, image in changed.images.items():
            found = self.hub.image_version(image)
            if found is None and "/" in image and self.hub.pull(image):
                found = self.hub.image_version(image)
            if found is None and kind in SERVING:
                self.say(f"   {image} is missing: endpoints with a model cannot start without it.")
            elif found != self.version:
                has = "is not on this engine" if found is None else f"has version {found or 'unknown'}"
                raise UpgradeError(
                    f"The image {image} {has}. Build it (`make images`), load a bundle (`./load`) or name a registry "
                    "that has it (FARANDOLE_REGISTRY). Nothing was changed."
                )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])
