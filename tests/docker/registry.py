"""A registry in a container, built from Debian's package so that the tests need no public registry."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole.registry.reference import Reference, parse_reference

from hub.process import local_session, wait_until
from images.build import run_build
from images.names import CPU, SERVING, version
from spawner_config.settings import ROOT
from tests.docker.stack import docker, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Network

    from images.names import Image

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
"""Matches a line of the registry's log and captures the number of bytes sent."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A registry in ``container``.

    This machine reaches the registry at the host:port ``here``, and the other machine at ``there``.
    """

    container: str
    here: str
    there: str

    def publish(self) -> dict[str, str]:
        """Run `make publish` and return the settings that it prints, with the address that the other machine uses."""
        environment = {**os.environ, "REGISTRY": self.here, "ACCELERATOR": CPU}
        command = [sys.executable, "-m", "images.publish"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        lines = done.stdout.replace(self.here, self.there).splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def serving(self) -> Reference:
        """The serving image."""
        return parse_reference(f"{self.here}/{SERVING.tag(version())}")

    def push(self, image: Image) -> None:
        """Push an image of this machine's engine."""
        name = f"{self.here}/{image.tag(version())}"
        docker("tag", image.tag(version()), name)
        docker("push", "--quiet", name)

    def sent(self) -> int:
        """Return the number of bytes that the registry has sent since its start."""
        log = run("docker", "logs", self.container)
        return sum(int(size) for size in SENT.findall(log.stdout + log.stderr))

    def answers(self) -> bool:
        """Return whether the registry is ready."""
        try:
            return local_session().get(f"http://{self.here}/v2/", timeout=5).ok
        except OSError:
            return False


@contextmanager
def running(address: str) -> Iterator[Registry]:
    """Run a registry that another machine reaches at ``address``, which is an address of this machine."""
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


@contextmanager
def address_in(network: IPv4Network) -> Iterator[str]:
    """Give this machine an address in a network of its engine, which other engines on it reach."""
    name = f"{NAME}-{secrets.token_hex(3)}"
    docker("network", "create", "--subnet", str(network), name)
    try:
        yield str(network[1])
    finally:
        docker("network", "rm", name)


def place(container: str, host: str) -> str:
    """Return the host:port at which the container's port 5000 is published on ``host``."""
    places = docker("port", container, "5000/tcp").splitlines()
    return next(each for each in places if each.startswith(f"{host}:"))


def forget(prefix: str) -> None:
    """Remove the image names with this prefix, which were added for a push or by a pull.

    Images with other names stay.
    """
    lines = docker("image", "ls", "--digests", "--format", "{{.Repository}} {{.Tag}} {{.Digest}}").splitlines()
    parts = [line.split() for line in lines if line.startswith(prefix)]
    # An image that was pulled by its digest has no tag.
    ours = [f"{name}@{digest}" if tag == "<none>" else f"{name}:{tag}" for name, tag, digest in parts]
    if ours:
        docker("image", "rm", *ours)
