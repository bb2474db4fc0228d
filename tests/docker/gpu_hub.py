"""A hub on this machine whose servers are containers on an engine with real or stand-in GPUs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker

from hub.process import local_session, wait_until
from spawner_config.local import free_port
from spawner_config.roles import NOTEBOOK_SCOPES
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = Path(__file__).with_name("gpu_hub_config.py")
START_SECONDS = 180.0
SPAWN_SECONDS = 240.0


class GpuHub:
    """A hub, an API token with the rights to manage it, and a client for the engine that runs its servers."""

    def __init__(self, state: Path, engine: str, gpus: str, form: str = "auto") -> None:
        self.engine = docker.DockerClient(base_url=engine, version="auto", timeout=120)
        self.name = f"farandole-gpu-{secrets.token_hex(3)}"
        self._token = secrets.token_hex(16)
        self._log = state / "hub.log"
        port = free_port()
        self.api_url = f"http://127.0.0.1:{port}/hub/api"
        self._environment = {
            **os.environ,
            "DOCKER_HOST": engine,
            "FARANDOLE_GPUS": gpus,
            "FARANDOLE_GPU_REQUEST": form,
            "FARANDOLE_NAME": self.name,
            "FARANDOLE_PORT": str(port),
            "FARANDOLE_STATE": str(state),
            "HUB_PORT": str(free_port()),
            "HUB_TOKEN": self._token,
            "PROXY_PORT": str(free_port()),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'extension'}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the hub and wait until its API answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(CONFIG)],
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._log.parent,
                start_new_session=True,
            )
        wait_until(self._answers, START_SECONDS)

    def kill(self) -> None:
        """Kill the hub as in a crash. Its proxy keeps running until the next hub stops it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Stop the hub and remove its containers."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        for container in self.containers(every=True):
            container.remove(force=True)
        self.engine.close()

    def log(self, lines: int = 60) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the hub's API and return the response."""
        headers = {"Authorization": f"token {self._token}"}
        return local_session().request(method, f"{self.api_url}/{path}", json=body, headers=headers, timeout=60)

    def ask(self, user: str, profile: str = "gpu", **options: Any) -> None:
        """Create the user if necessary, and request a server without waiting for its start."""
        assert self.request("POST", f"users/{user}").status_code in {201, 409}
        answer = self.request("POST", f"users/{user}/server", {"profile": profile, **options})
        assert answer.status_code in {201, 202}, answer.text

    def token_for(self, user: str) -> str:
        """Return a new API token for the user, with the scopes of a notebook server."""
        assert self.request("POST", f"users/{user}").status_code in {201, 409}
        token: str = self.request("POST", f"users/{user}/tokens", {"scopes": NOTEBOOK_SCOPES}).json()["token"]
        return token

    def events(self, user: str) -> Iterator[dict[str, Any]]:
        """Yield the progress events of the start of the user's server until the start succeeds or fails."""
        with self._progress(user) as answer:
            for line in answer.iter_lines():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    def _progress(self, user: str) -> Any:
        """Open the stream of progress events.

        Retry while the hub answers 400, because it is cleaning up a failed start.
        """
        headers = {"Authorization": f"token {self._token}"}
        url = f"{self.api_url}/users/{user}/server/progress"
        answers: list[Any] = []

        def accepted() -> bool:
            answers.append(local_session().get(url, headers=headers, stream=True, timeout=SPAWN_SECONDS))
            return bool(answers[-1].status_code != 400)

        wait_until(accepted, START_SECONDS)
        assert answers[-1].ok, answers[-1].text
        return answers[-1]

    def spawn(self, user: str, profile: str = "gpu", **options: Any) -> dict[str, Any]:
        """Request the user's server, wait until its start succeeds or fails, and return the last progress event."""
        self.ask(user, profile, **options)
        return list(self.events(user))[-1]

    def stop(self, user: str) -> None:
        """Stop the user's server and wait until it has stopped."""
        assert self.request("DELETE", f"users/{user}/server").status_code in {202, 204}
        wait_until(lambda: "" not in self.request("GET", f"users/{user}").json()["servers"], START_SECONDS)

    def stop_all(self) -> None:
        """Stop all servers. Wait until the hub reports no running server and all containers are gone."""
        users = [user["name"] for user in self.request("GET", "users?state=active").json()]
        for user in users:
            self.request("DELETE", f"users/{user}/server")
        wait_until(lambda: not self.request("GET", "users?state=active").json(), START_SECONDS)
        wait_until(lambda: not self.containers(every=True), START_SECONDS)

    def holders(self) -> dict[str, int]:
        """Return how many GPUs each user holds, according to the hub."""
        held: dict[str, int] = self.request("GET", "farandole/gpus").json()["stand-in"]["held"]
        return held

    def containers(self, *, every: bool = False) -> list[Any]:
        return [each for each in self.engine.containers.list(all=every, ignore_removed=True) if self.name in each.name]

    def container(self, user: str) -> Any:
        return self.engine.containers.get(f"{self.name}-{user}")

    def devices(self, user: str) -> list[str]:
        """Return the names of the GPU device nodes in the user's container."""
        _, output = self.container(user).exec_run(["ls", "/dev"])
        return [name for name in output.decode().split() if name.startswith("nvidia") and name[6:].isdigit()]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return bool(self.request("GET", "").ok)
        except OSError:
            return False


@contextmanager
def gpu_hub(state: Path, engine: str, gpus: str = "0:stand-in,1:stand-in", form: str = "auto") -> Iterator[GpuHub]:
    """Run a hub, and print the end of its log if a test fails."""
    hub = GpuHub(state, engine, gpus, form)
    try:
        hub.start()
        yield hub
    except BaseException:
        print(hub.log())
        raise
    finally:
        hub.close()
