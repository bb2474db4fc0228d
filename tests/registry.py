"""Runs a real registry, the one of Debian, and puts a serving image into it, or a small one with its labels."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import yaml
from farandole.registry.client import Manifest, Registry, digest_of
from farandole.registry.reference import Reference, parse_reference

from hub.process import local_session, wait_until
from spawner_config.local import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

START_SECONDS = 30
BASE = "farandole-serving:1"
"""The name of the serving image in the registry."""
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKER_TAR = "application/vnd.docker.image.rootfs.diff.tar"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"


@dataclass
class RunningRegistry:
    """A registry without TLS, by default at a free port of the loopback interface.

    Attributes:
        folder: the folder with its blobs.
        host: its address and port.
        enter: the prefix of its command, which runs it in another network.
        pid: its process id, or 0 if it is not running.
    """

    folder: Path
    host: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    enter: tuple[str, ...] = ()
    pid: int = 0

    def reference(self, name: str) -> Reference:
        """Return the reference of an image in this registry."""
        return parse_reference(f"http://{self.host}/{name}")

    def blobs(self) -> set[str]:
        """Return the digests of all blobs."""
        found = (self.folder / "data").glob("docker/registry/v2/blobs/sha256/*/*")
        return {f"sha256:{path.name}" for path in found}

    def configure(self, **options: object) -> None:
        """Write the configuration. ``options`` are further sections of it."""
        storage = {"filesystem": {"rootdirectory": str(self.folder / "data")}}
        # In another network, it listens at all addresses, so that the programs there reach it at the loopback address.
        address = f":{self.host.rpartition(':')[2]}" if self.enter else self.host
        config = {"version": 0.1, "storage": storage, "http": {"addr": address}, **options}
        (self.folder / "config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def command(self) -> list[str]:
        """Return the command that runs this registry; a missing program fails the test."""
        program = shutil.which("docker-registry")
        if program is None:
            pytest.fail("The tests of registries need docker-registry; `make test` installs it.")
        return [*self.enter, program, "serve", str(self.folder / "config.yml")]

    def answers(self) -> bool:
        """Return whether it answers requests, be it with the demand for a login."""
        try:
            return local_session().get(f"http://{self.host}/v2/", timeout=10).status_code in {200, 401}
        except OSError:
            return False


@contextmanager
def running_registry(folder: Path, **options: object) -> Iterator[RunningRegistry]:
    """Run a registry with these sections in its configuration. Its log is in the error if it does not start."""
    with running(RunningRegistry(folder), **options) as registry:
        yield registry


@contextmanager
def running(registry: RunningRegistry, **options: object) -> Iterator[RunningRegistry]:
    """Run this registry."""
    folder = registry.folder
    folder.mkdir(exist_ok=True)
    registry.configure(**options)
    log = folder / "registry.log"
    with log.open("w") as output, subprocess.Popen(registry.command(), stdout=output, stderr=output) as process:
        try:
            registry.pid = process.pid
            wait_until(lambda: registry.answers() or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, log.read_text(encoding="utf-8")[-4000:]
            yield registry
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def push_serving_image(reference: Reference, *, runtime: str = "onnx", content: bytes = b"base") -> int:
    """Push an image with the labels of a serving image and one layer, and return the size of the layer in bytes."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as layer:
        entry = tarfile.TarInfo("etc/base")
        entry.size = len(content)
        layer.addfile(entry, io.BytesIO(content))
    packed = gzip.compress(archive.getvalue(), 1, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["LANG=C.UTF-8"], "Labels": {"farandole.runtime": runtime}},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(archive.getvalue())]},
            "history": [{"created_by": "test"}],
        }
    ).encode()
    _push(reference, config, [(DOCKER_LAYER, packed)])
    return len(packed)


def push_from_engine(image: str, reference: Reference) -> None:
    """Push an image of this machine's engine without compressing it, which is faster than `docker push`."""
    with tempfile.TemporaryFile() as saved:
        subprocess.run(["docker", "save", image], stdout=saved, check=True)
        saved.seek(0)
        with tarfile.open(fileobj=saved) as archive:

            def read(name: str) -> bytes:
                file = archive.extractfile(name)
                assert file is not None
                return file.read()

            [about] = json.loads(read("manifest.json"))
            _push(reference, read(about["Config"]), ((DOCKER_TAR, read(name)) for name in about["Layers"]))


def _push(reference: Reference, config: bytes, layers: Iterable[tuple[str, bytes]]) -> None:
    """Push the configuration and the layers of an image, each with its media type."""
    registry = Registry.of(reference)

    def upload(kind: str, blob: bytes) -> dict[str, object]:
        registry.upload(reference.repository, digest_of(blob), len(blob), iter([blob]))
        return {"mediaType": kind, "digest": digest_of(blob), "size": len(blob)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": upload(DOCKER_CONFIG, config),
        "layers": [upload(kind, blob) for kind, blob in layers],
    }
    content = json.dumps(manifest).encode()
    registry.put_manifest(reference.repository, reference.tag, Manifest(content=content, media_type=DOCKER_MANIFEST))
