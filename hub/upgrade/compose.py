"""The hub in containers: the commands with which an upgrade stops, starts and checks it."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any

from hub.doctor.deployment import Deployment
from spawner_config.labels import VERSION_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import IO

OVERRIDE = "docker-compose.override.yml"
REVISION_LABEL = "org.opencontainers.image.revision"
START_SECONDS = 240.0
POLL_SECONDS = 2.0
CRASHES = 2
"""How often the engine restarts a hub that cannot start before the upgrade counts as failed."""
LOG_LINES = "40"
POSTGRES = ("--username=farandole", "--dbname=farandole")
LOGIN_PAGE = """
import http.client, os, sys, time
host = os.environ.get("FARANDOLE_DOMAIN") or "hub.localhost"
for _ in range(30):
    try:
        proxy = http.client.HTTPConnection("proxy", 8000, timeout=20)
        proxy.request("GET", "/hub/login", headers={"Host": host})
        status = proxy.getresponse().status
        if status < 400:
            sys.exit()
        problem = f"status {status}"
    except OSError as exc:
        problem = str(exc)
    time.sleep(1)
sys.exit(problem)
"""
"""A program that requests the login page as a browser does, through the proxy. It runs in the hub's container."""


class UpgradeError(RuntimeError):
    """Raised when an upgrade cannot begin or fails; the message says why and what to do."""


class ComposeHub:
    """A hub that docker-compose.yml has started. Its settings are in ``folder``."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = environ

    @property
    def deployment(self) -> Deployment:
        """The settings as they are now."""
        return Deployment.read(self.folder, self.environ)

    @property
    def has_postgres(self) -> bool:
        """Whether the hub's database is the service `postgres`."""
        return "postgres" in self.deployment.profiles and bool(self.deployment.get("FARANDOLE_DATABASE"))

    @property
    def _container(self) -> str:
        return f"{self.deployment.name}-hub"

    def label(self, name: str) -> str:
        """Return a label of the hub's container, which need not run; raises `UpgradeError` if there is none."""
        found = self.docker("inspect", "--format", f'{{{{index .Config.Labels "{name}"}}}}', self._container)
        if found is None:
            raise UpgradeError(
                f"There is no container {self._container} to upgrade. Start the hub with its present version first: "
                f"`docker compose up -d --wait` in {self.folder}."
            )
        return found

    def image_version(self, image: str) -> str | None:
        """Return the version of an image on this engine, or None if the engine does not have the image."""
        return self.docker("image", "inspect", "--format", f'{{{{index .Config.Labels "{VERSION_LABEL}"}}}}', image)

    def pull(self, image: str) -> bool:
        """Pull an image, show the progress, and return whether that worked."""
        return not self._run("docker", "pull", image).returncode

    def stop(self) -> None:
        """Stop the hub. Users' servers and the proxy continue to run."""
        self.compose("stop", "hub")

    def start(self, file: Path | None = None) -> None:
        """Start the hub, by default with the compose file in its folder, and wait until it is healthy."""
        self.compose("up", "--detach", file=file)
        end = time.monotonic() + START_SECONDS
        before = self._restarts()
        while (health := self.docker("inspect", "--format", "{{.State.Health.Status}}", self._container)) != "healthy":
            crashed = self._restarts() - before >= CRASHES
            if crashed or health is None or time.monotonic() > end:
                why = "The hub ends again and again." if crashed else f"The hub does not answer: it is {health}."
                raise UpgradeError(f"{why} Its log ends with:\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def _restarts(self) -> int:
        return int(self.docker("inspect", "--format", "{{.RestartCount}}", self._container) or 0)

    def check_login(self) -> None:
        """Request the login page through the proxy; raises `UpgradeError` if there is none."""
        done = self._compose("exec", "-T", "hub", "python", "-c", LOGIN_PAGE)
        if done.returncode:
            raise UpgradeError(f"The login page does not open ({done.stderr.strip()}). The hub's log:\n{self.log()}")

    def log(self) -> str:
        """Return the end of the hub's log."""
        done = self._compose("logs", "--no-log-prefix", "--tail", LOG_LINES, "hub")
        return f"{done.stdout}{done.stderr}".strip()

    def undo_state(self, version: str) -> str:
        """Undo the upgrade of the stopped hub's state to ``version`` with the hub's present image."""
        undo = ("python", "-m", "spawner_config.upgrades", "back", version)
        return self.compose("run", "--rm", "--no-deps", "-T", "hub", *undo)

    def schema(self) -> str:
        """Return the revision of PostgreSQL's schema, or an empty string if the database is empty."""
        query = "SELECT version_num FROM alembic_version"
        done = self._compose("exec", "-T", "postgres", "psql", *POSTGRES, "-tAc", query)
        return "" if done.returncode else done.stdout.strip()

    def dump(self, target: Path) -> None:
        """Write a dump of PostgreSQL into a file that only its owner can read."""
        part = target.with_name(f"{target.name}.part")
        part.touch(mode=0o600)
        with part.open("wb") as file:
            self.compose("exec", "-T", "postgres", "pg_dump", *POSTGRES, output=file)
        part.rename(target)

    def load(self, dump: Path) -> None:
        """Replace the contents of PostgreSQL with those of a dump, in one transaction."""
        options = ("--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--file=-")
        script = b"DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n" + dump.read_bytes()
        self.compose("exec", "-T", "postgres", "psql", *POSTGRES, *options, typed=script)

    def compose(
        self, *arguments: str, file: Path | None = None, output: IO[bytes] | None = None, typed: bytes | None = None
    ) -> str:
        """Run docker compose, and return its output; raises `UpgradeError`, with the error output, if it fails."""
        done = self._compose(*arguments, file=file, output=output, typed=typed)
        if done.returncode:
            said = f"{done.stdout or ''}{done.stderr}".strip()
            raise UpgradeError(f"`docker compose {' '.join(arguments[:4])}` failed:\n{said}")
        return done.stdout or ""

    def _compose(
        self, *arguments: str, file: Path | None = None, output: IO[bytes] | None = None, typed: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        override = self.folder / OVERRIDE
        given = [path for path in (file, override) if path and path.exists()] if file else []
        files = [f"--file={path}" for path in given]
        command = ("docker", "compose", f"--project-directory={self.folder}", *files, *arguments)
        # Without input, a command must not read that of this process.
        streams = {"input": typed or b"", "stdout": output or subprocess.PIPE, "stderr": subprocess.PIPE}
        done = self._run(*command, cwd=self.folder, **streams)
        said = (done.stdout or b"").decode(errors="replace")
        return subprocess.CompletedProcess(command, done.returncode, said, done.stderr.decode(errors="replace"))

    def docker(self, *arguments: str) -> str | None:
        """Return the output of a docker command, or None if it fails."""
        done = self._run("docker", *arguments, capture_output=True, text=True)
        return None if done.returncode else done.stdout.strip()

    def _run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[Any]:
        try:
            return subprocess.run(command, env=self.environ, check=False, **options)
        except FileNotFoundError as exc:
            raise UpgradeError(
                "There is no docker command here. Install Docker 20.10 or newer with its compose plugin."
            ) from exc
