"""Tests that settings and profiles of the old commit 3ff8f67 still have the same effect."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import yaml
from traitlets.config.loader import PyFileConfigLoader

from hub.doctor.deployment import Deployment, read_env_file
from hub.doctor.env_file import check_settings
from hub.doctor.finding import Level
from spawner_config.settings import ROOT
from tests.compat.places import FIXTURES

CONFIG = ROOT / "hub" / "jupyterhub_config.py"
ADDRESSES = {
    "FARANDOLE_DEPLOYMENT": "kubernetes",
    "FARANDOLE_HUB_ADDRESS": "http://10.96.0.5:8081",
    "FARANDOLE_PROXY_API_ADDRESS": "http://10.96.0.6:8001",
    "FARANDOLE_PROXY_ADDRESS": "http://10.96.0.7:8000",
    "CONFIGPROXY_AUTH_TOKEN": "0123456789abcdef" * 4,
}
"""Variables that a hub on Kubernetes needs in addition to settings.env.

The addresses replace the Service variables that Kubernetes puts into every pod.
"""

Configure = Callable[[Mapping[str, str]], Any]


class Engine:
    """A fake Docker API client of a swarm manager that has no networks."""

    api_version = "1.47"

    def __init__(self, **_where: Any) -> None:
        pass

    def info(self) -> dict[str, Any]:
        return {"Swarm": {"NodeID": "n1", "ControlAvailable": True}}

    def networks(self, **_filters: Any) -> list[Any]:
        return []


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that loads the hub's configuration with given environment variables and the old profiles."""
    monkeypatch.setattr(docker, "APIClient", Engine)
    shutil.copy(FIXTURES / "profiles.toml", tmp_path)

    def load(environment: Mapping[str, str]) -> Any:
        for key, value in {**environment, "FARANDOLE_STATE": str(tmp_path)}.items():
            monkeypatch.setenv(key, value)
        return PyFileConfigLoader(CONFIG.name, path=str(CONFIG.parent)).load_config()

    return load


def deployed(folder: Path, name: str) -> Deployment:
    """Copy an old `.env` and the current compose file into a folder, and read the deployment as `make doctor` does."""
    shutil.copy(FIXTURES / f"{name}.env", folder / ".env")
    (folder / ".env").chmod(0o600)
    shutil.copy(ROOT / "docker-compose.yml", folder)
    return Deployment.read(folder, {})


def of_the_hub(name: str) -> dict[str, str]:
    """Return the environment variables that the current compose file gives the hub for an old `.env` file."""
    values = read_env_file(FIXTURES / f"{name}.env")
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    return {key: substituted(text, values) for key, text in services["hub"]["environment"].items()}


def substituted(text: str, values: Mapping[str, str]) -> str:
    """Substitute ``${NAME:-default}`` in a string as compose does, from the innermost expression outwards."""
    while found := re.search(r"\$\{([A-Z_]+)(?::[-?]([^${}]*))?\}", text):
        text = text[: found.start()] + (values.get(found[1]) or found[2] or "") + text[found.end() :]
    return text


def worker(c: Any, profile: str) -> Any:
    """Return a fake spawner of a worker with the attributes that the hub sets for a profile."""
    options = {"role": "worker", "cluster": "digits", "workers": 2, "together": 2, "profile": profile}
    user = SimpleNamespace(name="ada", spawners={}, groups=[])
    spawner = SimpleNamespace(name="digits-w0", user=user, user_options=options)
    spawner.extra_host_config, spawner.pvc_name = {}, "lab-home-ada"
    c.Spawner.apply_user_options(spawner, options)
    return spawner


@pytest.mark.parametrize("name", ["docker", "swarm"])
def test_the_doctor_finds_no_fault_in_an_old_file(tmp_path: Path, name: str) -> None:
    assert [finding.level for finding in check_settings(deployed(tmp_path, name))] == [Level.OK]


def test_the_doctor_reads_each_value(tmp_path: Path) -> None:
    deployment = deployed(tmp_path, "docker")
    assert deployment.name == "vision-lab"
    assert deployment.profiles == {"tls", "postgres"}
    assert deployment.images == {
        "hub": "registry.example.org:5000/farandole-hub:0.1.0",
        "notebook": "registry.example.org:5000/course:2026",
        "cuda": "registry.example.org:5000/course:2026-cuda",
        "serving": "registry.example.org:5000/farandole-serving:0.1.0",
        "serving-torch": "registry.example.org:5000/farandole-serving:0.1.0-torch",
    }
    assert deployment.path("FARANDOLE_TLS_FOLDER") == tmp_path / "certificates"
    expected = {
        "FARANDOLE_ADMIN_PASSWORD": "only $for these tests 7",
        "FARANDOLE_BIND": "192.0.2.10",
        "FARANDOLE_PORT": "8080",
        "FARANDOLE_ENGINE_SOCKET": "/run/user/1000/docker.sock",
        "FARANDOLE_GPU_IMAGE": "registry.example.org:5000/course:2026-cuda",
        "FARANDOLE_SUBNETS": "10.99.0.0/18",
        "FARANDOLE_TLS_PORT": "8443",
    }
    assert {key: deployment.get(key) for key in expected} == expected


def test_an_old_file_sets_each_setting_of_the_example(tmp_path: Path) -> None:
    """The fixtures contain every setting that existed in 3ff8f67."""
    old = read_env_file(FIXTURES / "docker.env")
    assert len(old) == 43
    assert set(old) <= set(read_env_file(ROOT / ".env.example"))
    old = read_env_file(FIXTURES / "kubernetes.env")
    assert len(old) == 31
    assert set(old) <= set(read_env_file(ROOT / "hub/kubernetes/site.example/settings.env.example"))


def test_a_hub_with_containers(configure: Configure) -> None:
    environment = of_the_hub("docker")
    assert environment["FARANDOLE_DATABASE"] == (
        "postgresql+psycopg://farandole:only-for-these-tests-8@postgres/farandole"
    )
    # The test runs without PostgreSQL.
    environment = {**environment, "FARANDOLE_DATABASE": "", "COMPOSE_PROFILES": "tls"}
    # Beside HTTPS, the hub now refuses the value of FARANDOLE_BIND in the old file, because passwords could be sent to
    # that address without HTTPS.
    with pytest.raises(SystemExit, match="Set FARANDOLE_BIND=127.0.0.1"):
        configure(environment)
    c = configure({**environment, "FARANDOLE_BIND": "127.0.0.1"})
    assert c.Authenticator.admin_users == {"ada"}
    assert (c.NativeAuthenticator.enable_signup, c.NativeAuthenticator.open_signup) == (True, False)
    assert c.JupyterHub.tornado_settings["cookie_options"] == {"secure": True}
    assert c.JupyterHub.subdomain_host == "https://hub.example.org:8443"
    assert c.DockerSpawner.image == "registry.example.org:5000/course:2026"
    assert c.DockerSpawner.prefix == "vision-lab-server"
    assert c.DockerSpawner.volumes == {"vision-lab-home-{username}": "/home/user"}
    assert c.DockerSpawner.extra_create_kwargs == {"labels": {"farandole.hub": "vision-lab"}}
    assert c.GpuSpawner.gpu_request_form == "cdi"
    [culler] = [each for each in c.JupyterHub.services if each["name"] == "idle-culler"]
    idle = {key: culler["environment"][key] for key in ("FARANDOLE_IDLE_MINUTES", "FARANDOLE_IDLE_SERVER_MINUTES")}
    assert idle == {"FARANDOLE_IDLE_MINUTES": "15", "FARANDOLE_IDLE_SERVER_MINUTES": "0"}


def test_profiles_of_containers(configure: Configure) -> None:
    # Without HTTPS, the hub now refuses the value of FARANDOLE_BIND in the old file unless FARANDOLE_HTTP allows it.
    environment = {**of_the_hub("docker"), "FARANDOLE_DATABASE": "", "COMPOSE_PROFILES": ""}
    c = configure({**environment, "FARANDOLE_HTTP": "insecure"})
    small, large, gpu = (worker(c, profile) for profile in ("cpu", "large", "gpu"))
    assert (small.image, small.mem_limit, small.cpu_limit) == ("registry.example.org:5000/course:2026", "6G", None)
    assert (large.image, large.mem_limit, large.cpu_limit) == ("registry.example.org/course:2026-nlp", "12G", 4.5)
    assert list(large.data_sets) == ["corpora"]
    own = ("FARANDOLE_CLUSTER", "FARANDOLE_RANKS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")
    assert [large.environment[key] for key in own] == ["digits", "2", "2", "false"]
    assert (gpu.image, gpu.gpus, gpu.gpu_class) == ("registry.example.org:5000/course:2026-cuda", 1, "rtx-2080-ti")


def test_a_hub_on_a_swarm(configure: Configure) -> None:
    # FARANDOLE_GPUS is empty, because the old profiles request another class of GPUs than it lists.
    environment = {**of_the_hub("swarm"), "FARANDOLE_SHARED_VOLUMES": "corpora:/data/corpora", "FARANDOLE_GPUS": ""}
    with pytest.raises(SystemExit, match="FARANDOLE_SWARM_HOMES needs"):
        configure(environment)
    c = configure({**environment, "FARANDOLE_FIREWALL": "set"})
    assert c.Authenticator.admin_users == {"ada@example.org"}
    assert c.OAuthenticator.allowed_users == {"ada@example.org", "grace@example.org"}
    assert c.GenericOAuthenticator.token_url == "https://login.example.org/token"
    assert c.GenericOAuthenticator.username_claim == "email"
    assert c.OAuthenticator.oauth_callback_url == "https://hub.example.org/hub/oauth_callback"
    assert c.DockerSpawner.image == "farandole-notebook:0.1.0"
    large, gpu = worker(c, "large"), worker(c, "gpu")
    assert large.needs.node_labels == {"disk": "fast"}
    assert large.mem_guarantee == "12G"
    assert (gpu.needs.gpus, gpu.needs.gpu_class) == (1, "rtx-2080-ti")
    assert gpu.image == "farandole-notebook:0.1.0-cuda"


def test_a_hub_on_kubernetes(configure: Configure) -> None:
    settings = {**read_env_file(FIXTURES / "kubernetes.env"), **ADDRESSES}
    settings["FARANDOLE_SHARED_VOLUMES"] += ",corpora:/data/corpora"
    # FARANDOLE_DOMAIN did not exist in 3ff8f67, and a hub that other machines can reach now requires it.
    with pytest.raises(SystemExit, match="FARANDOLE_DOMAIN is not set, and FARANDOLE_HTTPS=yes"):
        configure(settings)
    c = configure({**settings, "FARANDOLE_DOMAIN": "hub.example.org"})
    assert c.JupyterHub.subdomain_host == "https://hub.example.org"
    assert c.Authenticator.admin_users == {"ada"}
    assert (c.NativeAuthenticator.enable_signup, c.NativeAuthenticator.open_signup) == (True, True)
    assert c.JupyterHub.hub_connect_url == "http://10.96.0.5:8081"
    assert c.JupyterHub.tornado_settings["cookie_options"] == {"secure": True}
    pods = next(c[name] for name in c if name.endswith("KubeSpawner"))
    assert (pods.hub_name, pods.place_seconds) == ("lab", 600)
    assert pods.pod_name_template == "lab-{user_server}"
    assert pods.image_pull_secrets == ["registry", "mirror"]
    assert (pods.storage_capacity, pods.storage_class, pods.storage_access_modes) == ("20Gi", "nfs", ["ReadWriteOnce"])
    assert pods.pvc_name_template == "lab-home-{username}"
    small, gpu = worker(c, "cpu"), worker(c, "gpu")
    assert (small.image, small.mem_limit) == ("registry.example.org/course:2026", "3G")
    assert {"team": "vision", "release": "lab"}.items() <= small.extra_labels.items()
    claims = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in small.volumes]
    assert {"lab-home-ada", "imagenet", "corpora", "lab-group-vision"} <= set(claims)
    assert (gpu.image, gpu.extra_resource_limits["amd.com/gpu"]) == ("registry.example.org/course:2026-cuda", "1")
    assert gpu.node_selector == {"example.org/gpu": "rtx-2080-ti", "zone": "a"}
    assert (gpu.cpu_guarantee, gpu.mem_guarantee, gpu.priority_class_name) == (2, "8G", "farandole-training-high")
    assert gpu.extra_labels["kueue.x-k8s.io/queue-name"] == "vision"
    assert {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"} in gpu.tolerations
