"""Tests for the pods of users' servers, which KubeSpawner creates from our settings and profiles."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration
from kubespawner import spawner as kubespawner
from tornado.web import HTTPError
from traitlets.config import Config

from spawner_config.kubernetes.configure import (
    ACCESS_LABELS,
    QUEUE_COUNT,
    QUEUE_GROUP,
    QUEUE_NAME,
    QUEUE_SECONDS,
    configure_servers,
    scratch_request,
)
from spawner_config.kubernetes.pods import FarandoleKubeSpawner
from spawner_config.kubernetes.settings import KubernetesSettings
from spawner_config.profiles.profiles import ProfileError, parse_profiles
from spawner_config.settings import ROOT, SettingsError

SETTINGS = {
    "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1",
    "FARANDOLE_GPU_IMAGE": "farandole-notebook:1-cuda",
    "FARANDOLE_SERVING_IMAGE": "farandole-serving:1",
    "FARANDOLE_PULL_SECRETS": "registry",
    "FARANDOLE_SHARED_VOLUMES": "imagenet@2:/data/imagenet, web:/data/web",
    "FARANDOLE_GROUP_FOLDERS": "vision",
    "FARANDOLE_NOTEBOOK_PRIORITY": "farandole-notebooks",
    "FARANDOLE_MODEL_IMAGES": "registry.example.org/lab/*",
}
EXAMPLE = tomllib.loads((ROOT / "hub/kubernetes/site.example/profiles.toml").read_text())["profile"]
PROFILES: list[dict[str, Any]] = [
    {"name": "cpu", "description": "", "cpus": 2, "data": ["imagenet@2"]},
    {
        "name": "gpu",
        "description": "",
        "memory": "8G",
        "gpus": 2,
        "gpu_class": "NVIDIA-A100",
        "environment": {"BRACES": '{"a": 1}'},
        "kubernetes": {
            "node_selector": {"disk": "fast"},
            "prefer": {"gpus": "newer"},
            "tolerations": ["team=vision:NoSchedule"],
            "workers": "together",
            "priority": "farandole-training-high",
            "queue": "vision",
            "cpu_request": 0.5,
            "memory_request": "2G",
            "shared_memory": "2G",
            "scratch": "50Gi",
        },
    },
    {"name": "small", "description": "", "kubernetes": {"scratch": "64Mi"}},
    next(each for each in EXAMPLE if each["name"] == "serving"),
]


def configured(profiles: list[dict[str, Any]] = PROFILES) -> Config:
    c = Config()
    profile_set = parse_profiles({"profile": profiles}, counted=False)
    configure_servers(c, KubernetesSettings.from_environment(SETTINGS), profile_set, proxy="http://10.96.0.9:80")
    return c


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that returns the pod of a server, as it is sent to the API server, and the server's spawner."""
    monkeypatch.setattr(kubespawner, "load_config", lambda **_: None)
    monkeypatch.setattr(kubespawner, "shared_client", lambda *_: None)
    c = configured()
    hub = SimpleNamespace(api_url="http://10.96.0.8:8081/hub/api", base_url="/hub/", public_host="", url="")

    def make(name: str = "", user: str = "ada", groups: tuple[str, ...] = (), **options: Any) -> tuple[Any, Any]:
        owner = SimpleNamespace(
            name=user, id=1, url=f"/user/{user}/", spawners={}, groups=[SimpleNamespace(name=each) for each in groups]
        )
        row = SimpleNamespace(name=name, server=None, state=None)
        spawner = FarandoleKubeSpawner(
            config=c, user=owner, hub=hub, orm_spawner=row, api_token="t", namespace="farandole"
        )
        spawner.user_options = options
        spawner.apply_user_options(spawner, options)
        pod = asyncio.run(spawner.get_pod_manifest())
        api = ApiClient.__new__(ApiClient)
        api.configuration = Configuration()
        return api.sanitize_for_serialization(pod), spawner

    return make


def worker(made: Any, **options: Any) -> tuple[Any, Any]:
    found: tuple[Any, Any] = made("main-w0", role="worker", cluster="main", profile="gpu", **options)
    return found


def container(pod: Any) -> Any:
    (only,) = pod["spec"]["containers"]
    return only


def test_a_server_has_minimal_rights(made: Any) -> None:
    pod, _ = made()
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert (spec["restartPolicy"], spec["enableServiceLinks"]) == ("Never", False)
    assert spec["securityContext"] == {
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container(pod)["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["dnsConfig"]["options"][1] == {"name": "timeout", "value": "2"}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert container(pod)["imagePullPolicy"] == "IfNotPresent"


def test_a_profile_without_a_table_requests_its_limits(made: Any) -> None:
    resources = container(made()[0])["resources"]
    assert resources == {
        "limits": {"cpu": 2.0, "memory": 4 << 30, "ephemeral-storage": "10Gi"},
        "requests": {"cpu": 2.0, "memory": 4 << 30, "ephemeral-storage": "256Mi"},
    }


@pytest.mark.parametrize(
    ("limit", "request_"), [("64Mi", "64Mi"), ("256Mi", "256Mi"), ("512Mi", "256Mi"), ("1Gi", "256Mi")]
)
def test_a_server_never_requests_more_storage_than_its_limit(limit: str, request_: str) -> None:
    assert scratch_request(limit) == request_


def test_a_server_with_little_scratch_storage_requests_no_more(made: Any) -> None:
    resources = container(made(profile="small")[0])["resources"]
    assert resources["limits"]["ephemeral-storage"] == resources["requests"]["ephemeral-storage"] == "64Mi"


def test_an_endpoint_with_a_model_runs_from_the_image_with_its_runtime(made: Any) -> None:
    pod, _ = made("serve-iris", role="endpoint", model="iris:3", runtime="onnx")
    assert container(pod)["image"] == "farandole-serving:1"
    pod, _ = made("serve-app", role="endpoint", command=["python", "app.py"])
    assert container(pod)["image"] == "farandole-notebook:1"


def test_an_endpoint_with_the_image_of_a_model_gets_no_files_of_its_user(made: Any) -> None:
    pod, _ = made("serve-iris", groups=("vision",), role="endpoint", model_image="registry.example.org/lab/iris:3")
    assert container(pod)["image"] == "registry.example.org/lab/iris:3"
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["shm"]
    with pytest.raises(HTTPError, match="FARANDOLE_MODEL_IMAGES"):
        made("serve-iris", role="endpoint", model_image="registry.example.org/other/iris:3")


def test_endpoints_prefer_nodes_without_gpus_and_workers_have_the_gpus(made: Any) -> None:
    endpoint, _ = made("serve-app", role="endpoint", profile="serving", model="iris:3", runtime="onnx")
    [term] = endpoint["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    [rule] = term["preference"]["matchExpressions"]
    assert (rule["key"], rule["values"]) == ("farandole/gpus", ["none"])
    assert "nvidia.com/gpu" not in container(endpoint)["resources"]["limits"]
    assert "nvidia.com/gpu" not in {each.get("key") for each in endpoint["spec"]["tolerations"]}
    assert endpoint["spec"]["priorityClassName"] == "farandole-serving"
    assert container(worker(made)[0])["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_an_endpoint_whose_profile_has_no_priority_has_that_of_notebooks(made: Any) -> None:
    pod, _ = made("serve-app", role="endpoint", command=["python", "app.py"])
    assert pod["spec"]["priorityClassName"] == "farandole-notebooks"


def test_an_endpoint_without_an_image_names_the_setting(made: Any) -> None:
    with pytest.raises(HTTPError, match="must set FARANDOLE_SERVING_TORCH_IMAGE") as caught:
        made("serve-iris", role="endpoint", model="iris:3", runtime="torch")
    assert caught.value.status_code == 400
    assert "FARANDOLE_SERVING_TORCH_IMAGE" in (caught.value.reason or "")


def test_a_worker_has_the_resources_of_its_profile(made: Any) -> None:
    pod, _ = worker(made)
    spec = pod["spec"]
    assert container(pod)["image"] == "farandole-notebook:1-cuda"
    assert container(pod)["resources"] == {
        "limits": {"memory": 8 << 30, "nvidia.com/gpu": "2", "ephemeral-storage": "50Gi"},
        "requests": {"cpu": 0.5, "memory": 2 << 30, "ephemeral-storage": "256Mi"},
    }
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100", "disk": "fast"}
    assert spec["priorityClassName"] == "farandole-training-high"
    terms = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = terms[0]["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels == {"farandole.user": "ada", "farandole.cluster": "main"}
    assert labels.items() <= pod["metadata"]["labels"].items()
    keys = {each["key"]: each for each in spec["tolerations"]}
    assert keys["nvidia.com/gpu"] == {"key": "nvidia.com/gpu", "operator": "Exists"}
    assert keys["team"]["effect"] == "NoSchedule"
    assert keys["node.kubernetes.io/unreachable"]["tolerationSeconds"] == 30


def test_a_profile_does_not_affect_the_next_one(made: Any) -> None:
    _, spawner = worker(made, workers=2, together=2)
    spawner.user_options = {"role": "worker", "cluster": "main"}
    spawner.apply_user_options(spawner, spawner.user_options)
    assert spawner.extra_resource_limits == {"ephemeral-storage": "10Gi"}
    assert (spawner.node_selector, spawner.priority_class_name) == ({}, "")
    assert (spawner.pod_affinity_preferred, spawner.node_affinity_preferred, spawner.extra_annotations) == ([], [], {})
    assert QUEUE_NAME not in spawner.extra_labels


def test_a_notebook_has_its_own_priority_and_no_affinity_to_workers(made: Any) -> None:
    pod, _ = made(profile="gpu")
    assert pod["spec"]["priorityClassName"] == "farandole-notebooks"
    assert "podAffinity" not in pod["spec"]["affinity"]
    assert "farandole.cluster" not in pod["metadata"]["labels"]


def test_values_of_the_environment_are_not_templates(made: Any) -> None:
    pod, _ = worker(made)
    values = {each["name"]: each.get("value") for each in container(pod)["env"]}
    assert values["BRACES"] == '{"a": 1}'
    assert values["FARANDOLE_HUB_URL"] == "http://10.96.0.9:80"
    notebook = {each["name"]: each.get("value") for each in container(made()[0])["env"]}
    assert notebook["FARANDOLE_PROFILES"].startswith('[{"name": "cpu"')


def test_all_servers_of_a_user_have_the_home_and_the_shared_volumes(made: Any) -> None:
    pod, spawner = made(groups=("vision",))
    claims = {each["name"]: each["persistentVolumeClaim"] for each in pod["spec"]["volumes"] if "emptyDir" not in each}
    mounts = {each["mountPath"]: (claims.get(each["name"]) or {}) for each in container(pod)["volumeMounts"]}
    assert {path: (claim.get("claimName"), claim.get("readOnly")) for path, claim in mounts.items()} == {
        "/home/user": ("farandole-home-ada", False),
        "/data/imagenet": ("imagenet-v2", True),
        "/groups/vision": ("farandole-group-vision", False),
        "/dev/shm": (None, None),
    }
    values = {each["name"]: each.get("value") for each in container(pod)["env"]}
    assert values["FARANDOLE_MOUNTED_DATA"] == '{"imagenet@2": "/data/imagenet"}'
    assert spawner.get_pvc_manifest().spec.access_modes == ["ReadWriteMany"]
    other, _ = worker(made)
    assert other["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "farandole-home-ada"
    assert other["spec"]["volumes"][-1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2G"}


def test_a_profile_that_names_its_data_sets_is_bound_by_the_topology_of_their_claims_only(made: Any) -> None:
    def claims(pod: Any) -> list[str]:
        volumes = [each.get("persistentVolumeClaim") for each in pod["spec"]["volumes"]]
        return [each["claimName"] for each in volumes if each and each["readOnly"]]

    named, all_of_them = made(profile="cpu")[0], worker(made)[0]
    assert claims(named) == ["imagenet-v2"]
    assert claims(all_of_them) == ["imagenet-v2", "web"]
    # The scheduler reads the topology of the volumes itself, so that the hub adds no rule of its own.
    assert "nodeSelector" not in named["spec"]
    assert "nodeAffinity" not in named["spec"].get("affinity", {})


def test_notebook_servers_of_publishers_publish_at_the_hub(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(pod: Any) -> str | None:
        return {each["name"]: each.get("value") for each in container(pod)["env"]}.get("FARANDOLE_PUBLISH_TO")

    assert place(made()[0]) is None
    monkeypatch.setenv("FARANDOLE_DATA_PUBLISHERS", "Ada")
    _, spawner = made()
    configured().Spawner.apply_user_options(spawner, {})
    assert spawner.environment["FARANDOLE_PUBLISH_TO"] == "hub"
    _, spawner = worker(made)
    configured().Spawner.apply_user_options(spawner, {"role": "worker", "cluster": "main"})
    assert "FARANDOLE_PUBLISH_TO" not in spawner.environment


def test_pods_have_the_labels_that_policies_select(made: Any) -> None:
    pod, spawner = made(user="Ada Lovelace")
    labels = pod["metadata"]["labels"]
    assert ACCESS_LABELS.items() <= labels.items()
    assert labels["component"] == "singleuser-server"
    assert spawner.user_labels.items() <= labels.items()
    assert spawner.user_labels["farandole.user"].startswith("ada-lovelace-")
    assert len({made(user=name)[1].user_labels["farandole.user"] for name in ("ada", "Ada", "a-da", "a.da")}) == 4


@pytest.mark.parametrize("user", ["ada", "a" * 64, "ada.lovelace@analytical-engine.example.org"])
def test_the_name_of_a_pod_is_a_host_name(made: Any, user: str) -> None:
    names = {made(name, user, role="worker")[0]["metadata"]["name"] for name in ("main-w0", f"{'c' * 27}-w15")}
    assert len(names | {made("", user)[0]["metadata"]["name"]}) == 3
    assert max(map(len, names)) <= 63


def test_workers_of_a_starting_cluster_are_queued_as_a_group(made: Any) -> None:
    pod, spawner = worker(made, workers=3, together=3)
    meta = pod["metadata"]
    assert meta["labels"][QUEUE_NAME] == "vision"
    assert meta["labels"][QUEUE_GROUP].startswith("ada-main-")
    assert meta["annotations"][QUEUE_COUNT] == "3"
    assert spawner.start_timeout == QUEUE_SECONDS


@pytest.mark.parametrize("options", [{}, {"workers": 3, "together": 1}, {"workers": 1, "together": 1}])
def test_a_later_worker_is_queued_alone(made: Any, options: dict[str, int]) -> None:
    meta = worker(made, **options)[0]["metadata"]
    assert meta["labels"][QUEUE_NAME] == "vision"
    assert QUEUE_GROUP not in meta["labels"]
    assert QUEUE_COUNT not in meta["annotations"]


def test_without_a_queue_pods_have_no_queue_labels(made: Any) -> None:
    pod, spawner = made("main-w0", role="worker", workers=2, together=2)
    assert not [label for label in pod["metadata"]["labels"] if "kueue" in label]
    assert spawner.start_timeout < QUEUE_SECONDS


def test_invalid_settings_stop_the_hub() -> None:
    with pytest.raises(ProfileError, match="unknown key 'nodes'"):
        configured([{"name": "cpu", "description": "", "kubernetes": {"nodes": {}}}])
    with pytest.raises(SettingsError, match="'mnist'"):
        configured([{"name": "cpu", "description": "", "data": ["mnist"]}])


def test_the_driver_waits_at_least_as_long_as_the_hub(made: Any) -> None:
    pod, spawner = made()
    values = {each["name"]: each.get("value") for each in container(pod)["env"]}
    assert float(values["FARANDOLE_START_SECONDS"]) >= spawner.start_timeout > spawner.place_seconds
    read = "from farandole.driver.workers.starts import SERVER_START_SECONDS as seconds; print(seconds)"
    environ = {**os.environ, "FARANDOLE_START_SECONDS": values["FARANDOLE_START_SECONDS"]}
    done = subprocess.run([sys.executable, "-c", read], env=environ, capture_output=True, text=True, check=True)
    assert float(done.stdout) >= spawner.start_timeout
