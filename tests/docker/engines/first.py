"""A Docker engine for the tests on this machine.

`python -m tests.docker.engines.first up` starts the engine, and `down` stops it. If an engine is already running, `up`
uses it and `down` leaves it running. On a machine with systemd, `up` starts the engine as a system service, which
`down` leaves running too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docker.engines import base_image
from tests.docker.engines.daemon import START_SECONDS, Daemon, wait_for
from tests.docker.engines.debian import SetUpError, install, run, unpack_newer

FOLDER = Path("/var/tmp/farandole-engine")
PID_FILE = "dockerd.pid"
CONTAINERD_PID = Path("/var/run/docker/containerd/containerd.pid")
LOCAL = {"unix:///var/run/docker.sock", "unix:///run/docker.sock"}
"""The accepted values of DOCKER_HOST. Both are the socket that docker-compose.yml mounts into a container."""
SYSTEMD = Path("/run/systemd/system")
PROGRAMS = {"docker": "docker.io", "dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2", "ps": "procps"}
PLUGINS = {"buildx": "docker-buildx", "compose": "docker-compose"}
"""The packages of Docker's plugins. Bookworm does not have them, but those of the newer release run on it."""


def up() -> None:
    """Ensure that an engine with buildx, compose and the base image is running. Raises `SetUpError` if that fails."""
    check_local()
    if not _answers():
        _start()
    _ensure_plugins()
    base_image.ensure()


def down() -> None:
    """Stop the engine if `up` started it."""
    if _daemon().stop():
        shutil.rmtree(FOLDER)
        print("engine stopped", flush=True)


def check_local() -> None:
    """Raise `SetUpError` if the docker command uses an engine other than this machine's."""
    host = os.environ.get("DOCKER_HOST")
    if host and host not in LOCAL:
        raise SetUpError(
            f"DOCKER_HOST is {host}, but the tests need this machine's own engine, because they mount its socket and "
            "connect to the ports of its containers. Unset DOCKER_HOST."
        )


def _start() -> None:
    install(PROGRAMS)
    if SYSTEMD.is_dir():
        run("systemctl", "start", "docker")
        return
    daemon = _daemon()
    if daemon.pid():
        wait_for(_answers, f"Waiting for the engine that is already running (log: {daemon.log})", START_SECONDS)
        return
    forget_killed(daemon.folder / PID_FILE, CONTAINERD_PID)
    daemon.start(_answers)
    print(f"engine {run('docker', 'version', '--format', '{{.Server.Version}}').strip()} started", flush=True)


def forget_killed(dockerd: Path, containerd: Path) -> None:
    """Remove the PID files of killed daemons, because a new engine would trust them.

    The engine refuses to start if its own PID file contains the id of any running process. If containerd's PID file
    contains such an id, the engine waits for a containerd that never answers.
    """
    dockerd.unlink(missing_ok=True)
    if containerd.exists() and not _is_containerd(containerd.read_text().strip()):
        containerd.unlink()


def _is_containerd(pid: str) -> bool:
    try:
        return pid.isdigit() and Path(f"/proc/{pid}/comm").read_text().strip() == "containerd"
    except FileNotFoundError:
        return False


def _daemon() -> Daemon:
    return Daemon(name="dockerd", folder=FOLDER, command=("dockerd", "--pidfile", str(FOLDER / PID_FILE)))


def _answers() -> bool:
    # The docker command may be missing, because it is installed together with the engine.
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
            raise SetUpError(f"Docker's plugin {name} does not work. Run `docker {name} version` to see why.")
        print(f"installed the plugin {name} in {folder}", flush=True)


if __name__ == "__main__":
    commands = {"up": up, "down": down}
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args().command]()
    except SetUpError as exc:
        sys.exit(str(exc))
