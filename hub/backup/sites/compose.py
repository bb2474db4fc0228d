"""A hub of docker-compose.yml, on one machine or on a swarm. Its volumes are reached from a container of its image."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.backup.job import SAVE
from hub.backup.place import BackupError
from hub.backup.sites.command import run, run_agent
from hub.backup.sites.files import read_files, write_files
from hub.backup.sites.postgres import Postgres
from hub.backup.sites.site import Source
from hub.doctor.deployment import ENV_FILE, Deployment
from spawner_config.labels import HUB_LABEL, OWNER_LABEL
from spawner_config.settings import SettingsError
from spawner_config.swarm.shared_home import KEY, SharedHome, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hub.backup.job import Job
    from hub.backup.manifest import Manifest

STATE, NO_STATE = "/srv/farandole", "/tmp/state"
"""The state folder in the container, and what takes its place on an empty machine."""
BACKUP = "backup"
PARTS = "/parts"
"""The folder in which the container mounts the volumes of users and groups."""
KINDS = ("home", "group")
FILES = (ENV_FILE, "docker-compose.override.yml")
"""The operator's files that are part of a backup."""
USER_ID = "1000:1000"
GUARDS = ("--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--read-only", "--tmpfs=/tmp")


class ComposeSite:
    """The hub whose docker-compose.yml and .env are in ``folder``."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Read .env; raises `BackupError`."""
        self._folder = folder.resolve()
        self._environ = environ
        self.password_file = self._folder / "backup_password"
        self._read()

    def _read(self) -> None:
        try:
            self._settings = Deployment.read(self._folder, self._environ)
            self._share = SharedHome.from_environment({KEY: self._settings.get(KEY)})
        except (OSError, SettingsError) as exc:
            raise BackupError(f"The settings in {self._folder} cannot be read: {exc}") from exc

    @property
    def deployment(self) -> str:
        """The value of FARANDOLE_DEPLOYMENT, or an empty string without .env."""
        return "" if self._settings.file is None else self._settings.get("FARANDOLE_DEPLOYMENT") or "docker"

    @property
    def database(self) -> str:
        """The kind of the database."""
        if not self._settings.get("FARANDOLE_DATABASE"):
            return "sqlite"
        return "postgresql" if "postgres" in self._settings.profiles else "elsewhere"

    @property
    def state(self) -> str:
        """The state folder in the container."""
        return STATE if self._has_state() else NO_STATE

    def setting(self, key: str) -> str:
        """Return a setting of .env or of the environment."""
        return self._settings.get(key)

    def source(self) -> Source:
        """Return the volumes of users and groups, the operator's files, and the dump of PostgreSQL."""
        if not self._has_state():
            raise BackupError(f"There is no hub {self._name} to back up on this engine. Start it first.")
        postgres = self._postgres
        if self.database == "elsewhere":
            print("The database of FARANDOLE_DATABASE is not part of this backup. Dump it as well.", file=sys.stderr)
        return Source(
            folders=self._folders(),
            owners=self._owners(),
            settings=read_files(self._folder, FILES),
            dump=postgres.dump() if postgres else "",
            schema=postgres.schema() if postgres else "",
        )

    def run(self, job: Job) -> dict[str, Any]:
        """Do a step in a container with the volumes."""
        mounts, container = self._mounts(job), f"{self._name}-{BACKUP}"
        if container in run("docker", "ps", "--all", "--format", "{{.Names}}").split():
            raise BackupError(
                f"Another backup or restore of this hub is running, in the container {container}. Try again when it "
                f"has finished. To end it: docker rm -f {container}"
            )
        name = ("--rm", "--interactive", f"--name={container}", f"--user={USER_ID}")
        command = ("python", "-m", "hub.backup.agent")
        labels = (f"--label={HUB_LABEL}={self._name}", "--label=farandole.role=service")
        return run_agent("docker", "run", *name, *GUARDS, *labels, *mounts, self._image, *command, job=job.to_json())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Raise `BackupError` if the hub or a user's server runs."""
        if self.deployment:
            self._check_stopped()
        yield

    def _check_stopped(self) -> None:
        ours = ("--filter", f"label={HUB_LABEL}={self._name}", "--format")
        format_ = '{{.Names}} {{.Label "farandole.role"}}'
        running = [line.split() for line in run("docker", "ps", *ours, format_).splitlines()]
        servers = [words[0] for words in running if len(words) == 1]
        if self.deployment == "swarm":
            servers += run("docker", "service", "ls", *ours, "{{.Name}}").split()
        if f"{self._name}-hub" in {words[0] for words in running}:
            raise BackupError("The hub is running, and nothing was changed. Stop it: docker compose stop hub")
        if servers:
            raise BackupError(
                f"{len(servers)} servers of users are running, and nothing was changed. Stop them, see 'Stop the hub' "
                "in docs/how-to/containers.md."
            )

    def write_settings(self, settings: dict[str, str]) -> bool:
        """Write the operator's files of a backup, but replace none that exists. Return whether .env is new."""
        written = write_files(self._folder, {name: text for name, text in settings.items() if name in FILES})
        self._read()
        return ENV_FILE in written

    def count_homes(self) -> int:
        """Return the number of homes and group folders."""
        return len(self._folders()) if self.deployment else 0

    def count_users(self) -> int:
        """Return the number of users in PostgreSQL, which is started if necessary."""
        postgres = self._postgres
        if not self.deployment or postgres is None:
            return 0
        self._compose("up", "--detach", "--wait", "--no-deps", "postgres")
        return postgres.users()

    def prepare(self, manifest: Manifest) -> dict[str, tuple[str, str]]:
        """Create the volumes that do not exist, and return the folders of all homes and groups."""
        self._compose("up", "--no-start", "--no-deps", "hub")
        owners = {f"{self._name}-{_dashed(part.name)}": part.owner for part in manifest.parts if _is_folder(part.name)}
        if self._share:
            self._create(whole(self._name), "", self._share.options(whole(self._name), self._name))
            return {self._part(volume): (f"{_at(whole(self._name))}/{volume}", "") for volume in owners}
        for volume, owner in owners.items():
            self._create(volume, owner, {})
        self._give_to_users(owners)
        return {self._part(volume): (_at(volume), "") for volume in owners}

    def restore_database(self, dump: str) -> None:
        """Replace the content of PostgreSQL."""
        postgres = self._postgres
        if postgres is None:
            raise BackupError("The backup has a dump of PostgreSQL, but COMPOSE_PROFILES does not name postgres.")
        postgres.restore(dump)

    @property
    def _name(self) -> str:
        return self._settings.name

    @property
    def _image(self) -> str:
        return self._settings.images["hub"]

    @property
    def _postgres(self) -> Postgres | None:
        return Postgres(self._compose) if self.database == "postgresql" else None

    def _compose(self, *arguments: str, typed: str = "") -> str:
        return run("docker", "compose", *arguments, cwd=self._folder, typed=typed)

    def _has_state(self) -> bool:
        folder = self._settings.get("FARANDOLE_STATE_FOLDER")
        if not self.deployment:
            return False
        return self._settings.path("FARANDOLE_STATE_FOLDER").is_dir() if folder else f"{self._name}-state" in _volumes()

    def _volumes(self) -> list[str]:
        """Return the names of the volumes of users and groups."""
        starts = tuple(f"{self._name}-{kind}-" for kind in KINDS)
        return sorted(each for each in _volumes() if each.startswith(starts))

    def _folders(self) -> dict[str, tuple[str, str]]:
        """Return the folders of users and groups in the container."""
        return self._shared() if self._share else {self._part(each): (_at(each), "") for each in self._volumes()}

    def _shared(self) -> dict[str, tuple[str, str]]:
        """Return the folders of users and groups in the folder that all machines of a swarm share."""
        share = whole(self._name)
        if share not in _volumes():
            return {}
        mount = f"--mount=type=volume,source={share},target={_at(share)},readonly"
        listed = run("docker", "run", "--rm", f"--user={USER_ID}", *GUARDS, mount, self._image, "ls", _at(share))
        starts = tuple(f"{self._name}-{kind}-" for kind in KINDS)
        return {self._part(each): (f"{_at(share)}/{each}", "") for each in listed.split() if each.startswith(starts)}

    def _owners(self) -> dict[str, str]:
        """Return the full names of users by the names of the parts, as the labels of volumes say."""
        names = self._volumes()
        found = json.loads(run("docker", "volume", "inspect", *names)) if names else []
        labels = {each["Name"]: each.get("Labels") or {} for each in found}
        return {self._part(name): labels[name][OWNER_LABEL] for name in names if OWNER_LABEL in labels[name]}

    def _part(self, volume: str) -> str:
        kind, _, rest = volume.removeprefix(f"{self._name}-").partition("-")
        return f"{kind}/{rest}"

    def _mounts(self, job: Job) -> list[str]:
        mounts = [_mount(volume, target, read_only=job.action == SAVE) for volume, target in self._used(job).items()]
        if job.state == STATE:
            state, snapshots = (self._folder_or_volume(key) for key in ("STATE", "SNAPSHOTS"))
            mounts += [_mount(state, STATE), _mount(snapshots, f"{STATE}/snapshots", read_only=job.action == SAVE)]
        if job.place.startswith("/"):
            if not Path(job.place).is_dir():
                raise BackupError(
                    f"The folder {job.place} for backups does not exist. Create it, or mount its disk, and give it to "
                    "user id 1000: chown 1000:1000"
                )
            mounts.append(_mount(job.place, job.place))
        return mounts

    def _used(self, job: Job) -> dict[str, str]:
        """Return the volumes of a job's folders, and where they are mounted."""
        names = {Path(root).relative_to(PARTS).parts[0] for root, _ in job.folders.values()}
        return {name: _at(name) for name in sorted(names)}

    def _folder_or_volume(self, kind: str) -> str:
        key = f"FARANDOLE_{kind}_FOLDER"
        return str(self._settings.path(key)) if self._settings.get(key) else f"{self._name}-{kind.lower()}"

    def _create(self, volume: str, owner: str, options: Mapping[str, str]) -> None:
        """Create a volume if it does not exist, as the hub does."""
        labels = [f"--label={HUB_LABEL}={self._name}", *([f"--label={OWNER_LABEL}={owner}"] if owner else [])]
        run("docker", "volume", "create", *labels, *(f"--opt={key}={value}" for key, value in options.items()), volume)

    def _give_to_users(self, volumes: Iterable[str]) -> None:
        """Give volumes to the user id of all servers. A new volume belongs to root."""
        mounts = [_mount(volume, _at(volume)) for volume in volumes]
        if mounts:
            user = ("--user=0:0", *GUARDS, "--cap-add=CHOWN", "--network=none")
            run("docker", "run", "--rm", *user, *mounts, self._image, "chown", USER_ID, *map(_at, volumes))


def _volumes() -> list[str]:
    return run("docker", "volume", "ls", "--format", "{{.Name}}").split()


def _mount(source: str, target: str, *, read_only: bool = False) -> str:
    kind = "bind" if source.startswith("/") else "volume"
    return f"--mount=type={kind},source={source},target={target}{',readonly' if read_only else ''}"


def _at(volume: str) -> str:
    return f"{PARTS}/{volume}"


def _is_folder(part: str) -> bool:
    return part.startswith(tuple(f"{kind}/" for kind in KINDS))


def _dashed(part: str) -> str:
    return part.replace("/", "-", 1)
