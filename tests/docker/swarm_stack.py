"""A hub that docker-compose.yml starts on the manager of a swarm. Users' servers run on all machines of the swarm."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from hub.process import wait_until
from spawner_config.containers.names import container_name, slug
from tests.docker.stack import Stack, docker, run, while_up

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.docker.engines.second import SecondEngine
    from tests.docker.engines.swarm import Swarm

USER_ID = 1000
GONE_SECONDS = 60.0


class SwarmStack(Stack):
    """A hub on a swarm. The users' homes are folders in ``homes``, which both machines share."""

    def __init__(self, folder: Path, swarm: Swarm, homes: Path, **settings: str) -> None:
        os.chown(homes, USER_ID, USER_ID)
        super().__init__(
            folder,
            subnets="10.216.128.0/18",
            engine=swarm.manager,
            FARANDOLE_DEPLOYMENT="swarm",
            FARANDOLE_SWARM_HOMES=str(homes),
            FARANDOLE_FIREWALL="set",
            **settings,
        )
        self.swarm = swarm

    def servers(self, user: str) -> dict[str, Server]:
        """Return the user's running servers by service name."""
        found = [server for engine in self.swarm.engines for server in self._servers_on(engine)]
        network = f"{self.name}-user-{slug(user)}"
        return {server.service: server for server in found if server.network == network}

    def workers(self, user: str) -> list[Server]:
        """Return the user's workers, sorted by name."""
        return [server for name, server in sorted(self.servers(user).items()) if "--" in name]

    def notebook(self, user: str) -> Server:
        """Return the user's notebook server."""
        return self.servers(user)[container_name(f"{self.name}-server", user, "")]

    def services(self) -> list[str]:
        """Return the names of the services of all servers, including stopped servers."""
        return sorted(self.docker("service", "ls", "--format", "{{.Name}}").split())

    def logs(self) -> str:
        """Return the last lines of all logs, including those of users' servers, and the swarm's list of servers."""
        # The engines may already have stopped if a fixture of the session has failed.
        engines = [engine for engine in self.swarm.engines if not run("docker", "version", host=engine.url).returncode]
        servers = [server for engine in engines for server in self._servers_on(engine)]
        said = [f"--- {server.service}\n{server.log()}" for server in servers]
        tasks = [self.docker("service", "ps", "--no-trunc", name) for name in self.services()]
        return "\n".join([super().logs(), *said, *tasks])

    def down(self) -> None:
        """Remove all users' servers, then everything whose name begins with the hub's name."""
        if names := self.services():
            self._run("docker", "service", "rm", *names)
        for server in [server for engine in self.swarm.engines for server in self._servers_on(engine)]:
            # A server that has ended meanwhile cannot be killed.
            run("docker", "kill", server.container, host=server.engine.url)
        wait_until(lambda: not any(map(self._servers_on, self.swarm.engines)), GONE_SECONDS)
        super().down()

    def _servers_on(self, engine: SecondEngine) -> list[Server]:
        format_ = '{{.ID}} {{.Label "com.docker.swarm.service.name"}} {{.Networks}}'
        lines = docker("ps", "--format", format_, host=engine.url).splitlines()
        parts = [line.split() for line in lines]
        return [Server(engine, *words) for words in parts if len(words) == 3 and words[2].startswith(self.name)]


class Server:
    """The container of a user's server, and the engine that runs it."""

    def __init__(self, engine: SecondEngine, container: str, service: str, network: str) -> None:
        self.engine = engine
        self.container = container
        self.service = service
        self.network = network

    def run(self, *command: str) -> str:
        """Run a command inside the container and return its output."""
        return docker("exec", self.container, *command, host=self.engine.url)

    def kill(self) -> None:
        """Kill the container as the kernel does when memory runs out."""
        docker("kill", self.container, host=self.engine.url)

    def inspect(self) -> dict[str, Any]:
        """Return the output of `docker inspect` for the container."""
        found: dict[str, Any] = json.loads(docker("inspect", self.container, host=self.engine.url))[0]
        return found

    def address(self) -> str:
        """Return the container's address in its user's network."""
        [address] = self.run("hostname", "--ip-address").split()
        return address

    def addresses(self) -> list[str]:
        """Return all of the container's addresses, including the one through which it reaches other machines."""
        return self.run("hostname", "--all-ip-addresses").split()

    def log(self) -> str:
        """Return the last lines of the container's log."""
        return docker("logs", "--tail", "40", self.container, host=self.engine.url)


def running(folder: Path, swarm: Swarm, homes: Path, **settings: str) -> AbstractContextManager[SwarmStack]:
    """Return a context manager that runs a `SwarmStack`."""
    return while_up(SwarmStack(folder, swarm, homes, **settings))
