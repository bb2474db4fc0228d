"""The spawner of the bench's hub, which runs each worker in the namespace of its host."""

from __future__ import annotations

import re

from bench.network.links import address, host
from spawner_config.local import LocalSpawner

NAMED = 'hostname "$0" && exec "$@"'
"""A script that gives the machine the name of its first argument, and runs the others as a command."""
WORKER = re.compile(r"-w([0-9]+)$")


class NamespaceSpawner(LocalSpawner):
    """Runs worker ``N`` on host ``N``. Notebook servers run on this machine."""

    async def start(self) -> tuple[str, int]:
        """Start the server, and return its address."""
        if found := WORKER.search(self.name):
            number = int(found[1])
            self.ip = str(address(number))
            self.cmd = [
                "ip",
                "netns",
                "exec",
                host(number),
                "unshare",
                "--uts",
                "sh",
                "-c",
                NAMED,
                host(number),
                *self.cmd,
            ]
        return await super().start()
