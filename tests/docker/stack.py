"""A hub that docker-compose.yml starts on a real engine, with a unique name by which all its objects are removed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from spawner_config.origins.hosts import DEFAULT_DOMAIN
from spawner_config.settings import ROOT
from tests.clients.hosts import forward
from tests.docker.ports import HTTP, quiet_port
from tests.docker.remote_hub import ADMIN, RemoteHub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.docker.engines.second import SecondEngine

LABEL = "farandole.hub"
COMMAND_SECONDS = 300
S = TypeVar("S", bound="Stack")


class Stack(RemoteHub):
    """A hub whose docker-compose.yml and .env are in ``folder``, copied from the folder ``source``.

    It runs on ``engine`` or, by default, on this machine's first engine.
    """

    def __init__(
        self, folder: Path, *, subnets: str, engine: SecondEngine | None = None, source: Path = ROOT, **settings: str
    ) -> None:
        self.name = f"farandole-test-{secrets.token_hex(3)}"
        self.folder = folder
        self.engine = engine
        super().__init__(f"http://{DEFAULT_DOMAIN}:{(port := quiet_port(HTTP))}")
        if engine:
            forward(port, (engine.address, port))
        shutil.copy(source / "docker-compose.yml", folder)
        given = {
            "FARANDOLE_NAME": self.name,
            "FARANDOLE_PORT": str(port),
            "FARANDOLE_ADMIN": ADMIN,
            "FARANDOLE_ADMIN_PASSWORD": self.passwords[ADMIN],
            "FARANDOLE_PROXY_TOKEN": secrets.token_hex(32),
            "FARANDOLE_SIGNUP": "open",
            "FARANDOLE_SUBNETS": subnets,
            **(elsewhere(engine) if engine else {}),
            **settings,
        }
        self.settings = given
        (folder / ".env").write_text(fill_in((source / ".env.example").read_text(), given))

    def compose(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run docker compose in the hub's folder.

        Raises AssertionError with the output if the command fails and ``check`` is true.
        """
        done = self._run("docker", "compose", *arguments, cwd=self.folder)
        assert not (check and done.returncode), f"docker compose {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done

    def docker(self, *arguments: str) -> str:
        """Return the output of a docker command on the hub's engine. Raises AssertionError if the command fails."""
        return docker(*arguments, host=self.engine.url if self.engine else None)

    def _run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return run(*command, cwd=cwd, host=self.engine.url if self.engine else None)

    def up(self) -> None:
        """Start the hub and wait until the login page answers."""
        self.compose("up", "-d")
        self.wait_ready()

    def containers(self, *, everything: bool = False) -> list[str]:
        """Return the names of the containers of users' servers, or of all containers if ``everything`` is true."""
        format_ = '{{.Names}} {{.Label "farandole.role"}}'
        lines = self.docker("ps", "-a", "--filter", f"label={LABEL}={self.name}", "--format", format_).splitlines()
        parts = [line.split() for line in lines]
        return sorted(words[0] for words in parts if everything or len(words) == 1)

    def inspect(self, container: str) -> dict[str, Any]:
        """Return the output of `docker inspect` for a container."""
        found: dict[str, Any] = json.loads(self.docker("inspect", container))[0]
        return found

    def logs(self) -> str:
        """Return the states and the last lines of the logs of all containers."""
        return "\n".join(f"--- {name}\n{self._tail(name)}" for name in self.containers(everything=True))

    def _tail(self, container: str) -> str:
        state = self._run("docker", "inspect", "--format", "{{.RestartCount}} restarts, {{json .State}}", container)
        done = self._run("docker", "logs", "--timestamps", "--tail", "150", container)
        return state.stdout + done.stdout + done.stderr

    def down(self) -> None:
        """Remove the hub and everything whose name begins with the hub's name."""
        for name in self.containers():
            self._run("docker", "rm", "--force", "--volumes", name)
        # Let compose remove the hub and the proxy before the users' networks, because they still use these networks.
        self.compose("--profile", "*", "down", "--volumes", "--timeout", "3", check=False)
        for kind in ("network", "volume"):
            found = self.docker(kind, "ls", "--filter", f"name={self.name}-", "--format", "{{.Name}}").split()
            for name in found:
                self._run("docker", kind, "rm", name)
        left = self.containers(everything=True)
        assert not left, f"containers left: {left}"


def elsewhere(engine: SecondEngine) -> dict[str, str]:
    """Return the settings for a hub on another engine. A tunnel makes this hub available on this machine."""
    return {
        "FARANDOLE_BIND": "0.0.0.0",
        "FARANDOLE_DOMAIN": DEFAULT_DOMAIN,
        "FARANDOLE_HTTP": "insecure",
        "FARANDOLE_ENGINE_SOCKET": str(engine.socket),
    }


def make_certificate(folder: Path) -> None:
    """Write a certificate for the hosts of the hub and of its users, and a key that the container can read."""
    folder.mkdir(mode=0o755)
    names = f"subjectAltName=DNS:{DEFAULT_DOMAIN},DNS:*.{DEFAULT_DOMAIN}"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={DEFAULT_DOMAIN} -addext {names} "
        f"-keyout {folder}/tls.key -out {folder}/tls.crt".split(),
        check=True,
        capture_output=True,
    )
    (folder / "tls.key").chmod(0o644)


def fill_in(template: str, given: dict[str, str]) -> str:
    """Return ``template`` with the given values. Each setting must already occur in the template."""
    lines = template.splitlines()
    for key, value in given.items():
        [number] = [index for index, line in enumerate(lines) if line.startswith(f"{key}=")]
        lines[number] = f"{key}={value}"
    return "\n".join(lines) + "\n"


def run(
    *command: str, cwd: Path | None = None, host: str | None = None, typed: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command without the caller's FARANDOLE_ variables, which compose would prefer to those in .env.

    ``host`` is the address of another engine, and ``typed`` is the command's standard input.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FARANDOLE_")}
    if host:
        environment["DOCKER_HOST"] = host
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


def docker(*arguments: str, host: str | None = None) -> str:
    """Return the output of a docker command. Raises AssertionError with its error output if it fails."""
    done = run("docker", *arguments, host=host)
    assert not done.returncode, f"docker {' '.join(arguments)}\n{done.stderr}"
    return done.stdout.strip()


def running(folder: Path, **options: Any) -> AbstractContextManager[Stack]:
    """Return a context manager that runs a `Stack` with these options."""
    return while_up(Stack(folder, **options))


@contextmanager
def while_up(stack: S) -> Iterator[S]:
    """Start a hub, and remove it at the end. Print the hub's logs if its start or a test fails."""
    try:
        stack.up()
        yield stack
    except BaseException:
        print(stack.logs())
        raise
    finally:
        stack.down()
