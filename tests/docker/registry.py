"""A registry in a container, from Debian's package, so that no public registry is needed."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hub.process import local_session, wait_until
from images.build import run_build
from images.names import CPU
from spawner_config.settings import ROOT
from tests.docker.stack import docker, run

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "farandole-test-registry"
START_SECONDS = 60
RECIPE = b"""
FROM debian:bookworm-slim
RUN apt-get update -qq \\
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends docker-registry \\
    && rm -rf /var/lib/apt/lists/*
RUN printf 'version: 0.1\\nstorage: {filesystem: {rootdirectory: /srv}}\\nhttp: {addr: ":5000"}\\n' >/etc/registry.yml
VOLUME /srv
CMD ["docker-registry", "serve", "/etc/registry.yml"]
"""
SENT = re.compile(r'"GET /v2/\S* HTTP/[0-9.]+" 200 ([0-9]+) ')
"""A line of its log with the number of bytes sent."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A registry in ``container``; ``here`` and ``there`` are its host:port for this machine and the other."""

    container: str
    here: str
    there: str

    def publish(self) -> dict[str, str]:
        """Run `make publish` and return the settings that it prints, as the other machine sees them."""
        environment = {**os.environ, "REGISTRY": self.here, "ACCELERATOR": CPU}
        command = [sys.executable, "-m", "images.publish"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        lines = done.stdout.replace(self.here, self.there).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def sent(self) -> int:
        """Return the bytes that it has sent since its start."""
        log = run("docker", "logs", self.container)
        return sum(int(size) for size in SENT.findall(log.stdout + log.stderr))

    def answers(self) -> bool:
        """Return whether it is ready."""
        try:
            return local_session().get(f"http://{self.here}/v2/", timeout=5).ok
        except OSError:
            return False


@contextmanager
def running(address: str) -> Iterator[Registry]:
    """Run a registry that another machine reaches at ``address``, which belongs to this machine."""
    run_build(["--tag", NAME, "-"], context=RECIPE)
    container = f"{NAME}-{secrets.token_hex(3)}"
    ports = ("--publish", "127.0.0.1::5000", "--publish", f"{address}::5000")
    docker("run", "--detach", "--rm", "--name", container, *ports, NAME)
    try:
        here, there = (place(container, host) for host in ("127.0.0.1", address))
        registry = Registry(container=container, here=here, there=there)
        wait_until(registry.answers, START_SECONDS)
        try:
            yield registry
        finally:
            forget(f"{here}/")
    finally:
        docker("rm", "--force", "--volumes", container)


def place(container: str, host: str) -> str:
    """Return the host:port at which the host publishes a container's port."""
    places = docker("port", container, "5000/tcp").splitlines()
    return next(each for each in places if each.startswith(f"{host}:"))


def forget(prefix: str) -> None:
    """Remove the names that a push gave to images of this machine; their original names stay."""
    names = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
    ours = [name for name in names if name.startswith(prefix)]
    if ours:
        docker("image", "rm", *ours)
