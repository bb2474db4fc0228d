"""An engine for the tests on this machine: `python -m tests.docker.engines.first up`, and `down` at the end.

Where one answers already nothing is started, and nothing stopped afterwards. Where systemd runs, the engine is a
service of the machine and stays one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docker.engines import base_image
from tests.docker.engines.daemon import Daemon
from tests.docker.engines.debian import SetUpError, install, run, unpack_newer

FOLDER = Path("/var/tmp/farandole-engine")
SYSTEMD = Path("/run/systemd/system")
PROGRAMS = {"docker": "docker.io", "dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2", "ps": "procps"}
PLUGINS = {"buildx": "docker-buildx", "compose": "docker-compose"}
"""Not in bookworm; those of the newer release run here."""


def up() -> None:
    """Return when an engine answers that builds, composes and has the base image; raises `SetUpError`."""
    if not _answers():
        _start()
    _ensure_plugins()
    base_image.ensure()


def down() -> None:
    """Stop the engine that `up` started, if it did."""
    if _daemon().stop():
        shutil.rmtree(FOLDER)
        print("engine stopped", flush=True)


def _start() -> None:
    if os.environ.get("DOCKER_HOST"):
        raise SetUpError(f"DOCKER_HOST is {os.environ['DOCKER_HOST']}, where no engine answers. Start it, or unset it.")
    install(PROGRAMS)
    if SYSTEMD.is_dir():
        run("systemctl", "start", "docker")
        return
    _daemon().start(_answers)
    print(f"engine {run('docker', 'version', '--format', '{{.Server.Version}}').strip()} started", flush=True)


def _daemon() -> Daemon:
    return Daemon(name="dockerd", folder=FOLDER, command=("dockerd", "--pidfile", str(FOLDER / "dockerd.pid")))


def _answers() -> bool:
    # Absent too: the client comes with the engine.
    return bool(shutil.which("docker")) and _works("info")


def _works(*arguments: str) -> bool:
    return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode == 0


def _ensure_plugins() -> None:
    missing = [name for name in PLUGINS if not _works(name, "version")]
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
    for name in missing:
        [plugin] = unpack_newer(PLUGINS[name]).glob(f"usr/**/cli-plugins/docker-{name}")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(plugin, folder)
        if not _works(name, "version"):
            raise SetUpError(f"Docker's plugin {name} does not run, see `docker {name} version`.")
        print(f"plugin {name} put into {folder}", flush=True)


if __name__ == "__main__":
    commands = {"up": up, "down": down}
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args().command]()
    except SetUpError as exc:
        sys.exit(str(exc))
