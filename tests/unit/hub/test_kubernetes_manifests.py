"""Tests for the manifests in hub/kubernetes: the access they grant, and whether they fit each other and the spawner."""

from __future__ import annotations

import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub.doctor.firewall.internet import PRIVATE
from spawner_config.deployment import HUB_PORT, PROXY_PORT
from spawner_config.kubernetes.configure import ACCESS_LABELS, GONE_NODE_SECONDS, front
from spawner_config.kubernetes.profiles import PodNeeds
from spawner_config.kubernetes.settings import KubernetesSettings, service_url
from spawner_config.operators.configure import PORT as OPERATORS_PORT
from spawner_config.profiles.options import NOTEBOOK_BODY
from spawner_config.profiles.profiles import parse_profiles
from spawner_config.settings import ROOT, Settings
from spawner_config.snapshots.mirrors import MirrorSettings
from spawner_config.snapshots.record import service_folder
from spawner_config.snapshots.settings import PORT as SNAPSHOTS_PORT
from spawner_config.snapshots.settings import SnapshotSettings
from tests.kubernetes.site import STREAMS_LINES

FOLDER = ROOT / "hub/kubernetes"
SERVER = {"component": "singleuser-server", **ACCESS_LABELS}
"""The labels of a user's pod. KubeSpawner sets the first label."""
SERVER_PORT = 8888


def read(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")) if each]


SITE = read("site.example/kustomization.yaml")[0]
BASE = read("base/kustomization.yaml")[0]
OBJECTS = [each for name in BASE["resources"] for each in read(f"base/{name}")]
OBJECTS += [each for name in SITE["resources"] for each in read(f"site.example/{name}")]
OBJECTS += read("streams/streams.yaml")


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def pods() -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"]["template"] for each in OBJECTS if each["kind"] == "Deployment"}


def labels_of(name: str) -> dict[str, str]:
    labels: dict[str, str] = SERVER if name == "server" else pods()[name]["metadata"]["labels"]
    return labels


def policies(labels: dict[str, str]) -> list[dict[str, Any]]:
    specs = [each["spec"] for each in OBJECTS if each["kind"] == "NetworkPolicy"]
    return [spec for spec in specs if spec["podSelector"].get("matchLabels", {}).items() <= labels.items()]


def admits(spec: dict[str, Any], direction: str, peer: dict[str, str], port: int) -> bool:
    for rule in spec.get(direction, []):
        ports = [each["port"] for each in rule.get("ports", [])]
        peers = rule.get("from" if direction == "ingress" else "to")
        if (not ports or port in ports) and (peers is None or any(_selects(each, peer) for each in peers)):
            return True
    return False


def _selects(each: dict[str, Any], peer: dict[str, str]) -> bool:
    # A peer that has only a namespaceSelector selects all pods in those namespaces.
    labels = each.get("podSelector", {}).get("matchLabels", {})
    return "ipBlock" not in each and labels.items() <= peer.items()


def reaches(one_end: str, other_end: str, port: int) -> bool:
    here, there = labels_of(one_end), labels_of(other_end)
    out = any(admits(spec, "egress", there, port) for spec in policies(here))
    return out and any(admits(spec, "ingress", here, port) for spec in policies(there))


@pytest.mark.parametrize(
    ("one_end", "other_end", "port"),
    [
        ("proxy", "hub", HUB_PORT),
        ("proxy", "hub", OPERATORS_PORT),
        ("proxy", "hub", SNAPSHOTS_PORT),
        ("server", "hub", HUB_PORT),
        ("server", "proxy", PROXY_PORT),
        ("hub", "server", SERVER_PORT),
        ("proxy", "server", SERVER_PORT),
        ("hub", "proxy", 8001),
        ("server", "streams", 4222),
        ("hub", "streams", 4222),
    ],
)
def test_required_connections_are_allowed(one_end: str, other_end: str, port: int) -> None:
    assert reaches(one_end, other_end, port)


@pytest.mark.parametrize(
    ("one_end", "other_end", "port"),
    [
        ("server", "proxy", 8001),
        ("server", "hub", OPERATORS_PORT),
        ("server", "hub", SNAPSHOTS_PORT),
        ("server", "server", SERVER_PORT),
        ("server", "server", 29500),
        ("proxy", "server", 29500),
        ("hub", "server", 29500),
        ("proxy", "streams", 4222),
        ("server", "streams", 8222),
        ("server", "streams", 6222),
        ("streams", "server", SERVER_PORT),
        ("streams", "hub", HUB_PORT),
    ],
)
def test_nobody_else_is_reached(one_end: str, other_end: str, port: int) -> None:
    assert not reaches(one_end, other_end, port)


def test_a_peer_with_only_namespaces_admits_all_their_pods() -> None:
    rule = {"ports": [{"port": 53}], "to": [{"namespaceSelector": {}}]}
    assert admits({"egress": [rule]}, "egress", SERVER, 53)
    assert not admits({"egress": [rule]}, "egress", SERVER, 54)
    assert not admits({"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}, "egress", SERVER, 53)


def test_without_a_policy_nothing_is_admitted() -> None:
    assert one("NetworkPolicy", "nobody")["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "100.64.0.1",
        "127.0.0.1",
    ],
)
def test_egress_to_the_internet_excludes_private_addresses(address: str) -> None:
    (rule,) = one("NetworkPolicy", "servers-to-the-internet")["spec"]["egress"]
    block = rule["to"][0]["ipBlock"]
    excepted = [ip_network(each) for each in block["except"]]
    assert ip_address(address) in ip_network(block["cidr"])
    assert any(ip_address(address) in each for each in excepted)
    assert not any(ip_address("151.101.0.223") in each for each in excepted)


def test_the_way_to_the_internet_leaves_out_what_the_doctors_rules_do() -> None:
    (rule,) = one("NetworkPolicy", "servers-to-the-internet")["spec"]["egress"]
    excepted = [ip_network(each) for each in rule["to"][0]["ipBlock"]["except"]]
    assert set(PRIVATE) <= set(excepted)
    # All ranges are IPv4, so no rule admits IPv6 addresses.
    assert {ip_network(peer["ipBlock"]["cidr"]).version for peer in rule["to"]} == {4}


@pytest.mark.parametrize("name", ["hub", "proxy", "streams"])
def test_a_flood_of_requests_fills_neither_memory_nor_the_nodes_disk(name: str) -> None:
    spec = pods()[name]["spec"]
    (container,) = spec["containers"]
    assert {"memory", "ephemeral-storage"} <= set(container["resources"]["limits"])
    assert all(volume["emptyDir"].get("sizeLimit") for volume in spec["volumes"] if "emptyDir" in volume)


def test_the_hub_has_only_the_rights_that_it_needs_in_its_own_namespace() -> None:
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in one("Role", "hub")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert allowed == {
        ("", "pods"): {"get", "list", "watch", "create", "delete"},
        ("", "persistentvolumeclaims"): {"get", "create"},
        ("", "events"): {"get", "list", "watch"},
        ("networking.k8s.io", "networkpolicies"): {"get", "create", "patch", "delete"},
    }
    binding = one("RoleBinding", "hub")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "hub")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "hub"}]
    assert not [each for each in OBJECTS if each["kind"].startswith("ClusterRole")]


def test_only_the_hub_has_a_token() -> None:
    accounts = [each for each in OBJECTS if each["kind"] == "ServiceAccount"]
    assert [each["automountServiceAccountToken"] for each in accounts] == [False, False, False]
    tokens = {name: pod["spec"]["automountServiceAccountToken"] for name, pod in pods().items()}
    assert tokens == {"hub": True, "proxy": False, "streams": False}


@pytest.mark.parametrize("name", ["hub", "proxy", "streams"])
def test_the_hubs_pods_have_minimal_rights(name: str) -> None:
    spec = pods()[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert container["resources"]["limits"]["memory"]
    assert {"livenessProbe", "readinessProbe"} <= set(container)


@pytest.mark.parametrize("name", ["hub", "proxy", "proxy-api", "streams"])
def test_services_target_a_port_of_a_pod(name: str) -> None:
    spec = one("Service", name)["spec"]
    (template,) = (pod for pod in pods().values() if spec["selector"].items() <= pod["metadata"]["labels"].items())
    ports = [port["name"] for container in template["spec"]["containers"] for port in container["ports"]]
    assert [port["targetPort"] for port in spec["ports"] if port["targetPort"] not in ports] == []


def test_objects_that_pods_refer_to_exist() -> None:
    made = {each["name"] for kind in ("secretGenerator", "configMapGenerator") for each in SITE[kind]}
    hub = pods()["hub"]["spec"]
    secrets = {each["secretRef"]["name"]: each["secretRef"] for each in hub["containers"][0]["envFrom"]}
    assert {name for name, secret in secrets.items() if not secret.get("optional")} == {"settings", "proxy-token"}
    assert {"settings", "proxy-token", "profiles"} == made
    assert [each["configMap"]["name"] for each in hub["volumes"] if "configMap" in each] == ["profiles"]
    for name in ("hub-state", "hub-snapshots"):
        assert one("PersistentVolumeClaim", name)["spec"]["accessModes"] == ["ReadWriteOnce"]
    claims = [each["persistentVolumeClaim"]["claimName"] for each in hub["volumes"] if "persistentVolumeClaim" in each]
    assert claims == ["hub-state", "hub-snapshots"]


def test_the_settings_that_operators_copy_can_be_read() -> None:
    text = (FOLDER / "site.example/settings.env.example").read_text(encoding="utf-8")
    lines = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    ours = KubernetesSettings.from_environment({key: value for key, _, value in lines})
    needed = {
        "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:0.1.0",
        "FARANDOLE_SERVING_IMAGE": "farandole-serving:0.1.0",
        "FARANDOLE_SERVING_TORCH_IMAGE": "farandole-serving:0.1.0-torch",
        "FARANDOLE_NOTEBOOK_PRIORITY": "farandole-notebooks",
    }
    assert ours == KubernetesSettings.from_environment(needed)


def test_snapshots_are_on_a_volume_of_their_own() -> None:
    """The service leaves 1 GiB free, and a claim for the database may have no more than that."""
    (container,) = pods()["hub"]["spec"]["containers"]
    (state,) = (each["value"] for each in container["env"] if each["name"] == "FARANDOLE_STATE")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "snapshots")
    assert mount["mountPath"] == str(service_folder(Path(state)).parent)
    (values,) = read("values.yaml")
    (chart,) = values["hub"]["extraVolumeMounts"]
    assert chart["mountPath"] == str(service_folder(Path(values["hub"]["extraEnv"]["FARANDOLE_STATE"])).parent)
    (volume,) = values["hub"]["extraVolumes"]
    assert (volume["name"], chart["name"]) == ("snapshots", "snapshots")
    assert volume["persistentVolumeClaim"] == {"claimName": read("base/snapshots.yaml")[0]["metadata"]["name"]}


def test_with_the_chart_only_the_proxy_reaches_the_hubs_services() -> None:
    (values,) = read("values.yaml")
    ports = {OPERATORS_PORT, SNAPSHOTS_PORT}
    assert {each["port"] for each in values["hub"]["service"]["extraPorts"]} == ports
    (ingress,) = values["hub"]["networkPolicy"]["ingress"]
    (egress,) = values["proxy"]["chp"]["networkPolicy"]["egress"]
    assert {each["port"] for each in ingress["ports"]} == {each["port"] for each in egress["ports"]} == ports
    assert ingress["from"][0]["podSelector"]["matchLabels"]["component"] == "proxy"


@pytest.mark.parametrize("name", ["site.example/settings.env.example", "../../.env.example"])
def test_the_settings_of_snapshots_are_explained_with_their_defaults(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line.startswith("FARANDOLE_SNAPSHOTS"))
    for model in (SnapshotSettings, MirrorSettings):
        assert {str(field.alias) for field in model.model_fields.values()} <= set(given)
        assert model.from_environment(given) == model()


def test_streams_have_one_server_and_a_certificate_for_their_address() -> None:
    spec = one("Deployment", "streams")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"][2:] == [
        "hub.services.streams",
        "/srv/farandole",
        "0.0.0.0:4222",
        "streams",
        "$(STREAMS_SERVICE_HOST)",
    ]
    assert read("streams/kustomization.yaml")[0]["resources"] == ["streams.yaml"]


def test_a_site_enables_streams_by_removing_comments() -> None:
    text = (FOLDER / "site.example/kustomization.yaml").read_text(encoding="utf-8")
    enabled = yaml.safe_load(STREAMS_LINES.sub(r"  \1", text))
    assert enabled["bases"] == ["../base", "../streams"]
    assert {"name": "streams-secret", "env": "streams-secret.env"} in enabled["secretGenerator"]


def test_priorities_are_in_order() -> None:
    values = {each["metadata"]["name"]: each["value"] for each in OBJECTS if each["kind"] == "PriorityClass"}
    assert sorted(values, key=values.__getitem__) == [
        "farandole-training-low",
        "farandole-training-high",
        "farandole-notebooks",
        "farandole-serving",
        "farandole-hub",
    ]
    preempting = {each["metadata"]["name"] for each in OBJECTS if each.get("preemptionPolicy") != "Never"} & set(values)
    assert preempting == {"farandole-training-high", "farandole-hub"}
    assert {pod["spec"]["priorityClassName"] for pod in pods().values()} == {"farandole-hub"}


def test_the_hubs_pods_leave_a_dead_node_as_soon_as_users_pods() -> None:
    for pod in pods().values():
        assert {(each["key"], each["effect"], each["tolerationSeconds"]) for each in pod["spec"]["tolerations"]} == {
            ("node.kubernetes.io/not-ready", "NoExecute", GONE_NODE_SECONDS),
            ("node.kubernetes.io/unreachable", "NoExecute", GONE_NODE_SECONDS),
        }


def test_an_operators_copy_is_excluded_from_repository_and_images() -> None:
    for name in (".gitignore", ".dockerignore"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if line.rstrip("/") == "hub/kubernetes/site"], name


def test_the_charts_values_fit_our_settings() -> None:
    (values,) = read("values.yaml")
    environ = {key: value for key, value in values["hub"]["extraEnv"].items() if isinstance(value, str)}
    ours = KubernetesSettings.from_environment(environ)
    assert ours.pod_labels == {"app": "jupyterhub", "release": "farandole"}
    images = (ours.notebook_image, ours.serving_image, ours.serving_torch_image)
    assert images == ("farandole-notebook:0.1.0", "farandole-serving:0.1.0", "farandole-serving:0.1.0-torch")
    services = {
        "hub": "FARANDOLE_HUB_ADDRESS",
        "proxy-api": "FARANDOLE_PROXY_API_ADDRESS",
        "streams": "FARANDOLE_STREAMS_ADDRESS",
    }
    assert {service_url(environ, name, key).split("/")[2].split(":")[0] for name, key in services.items()} == set(
        services
    )
    profiles = values["hub"]["extraFiles"]["profiles.toml"]
    assert profiles["mountPath"] == environ["FARANDOLE_PROFILES_FILE"]
    profile_set = parse_profiles(tomllib.loads(profiles["stringData"]), counted=False)
    priorities = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "PriorityClass"}
    asked = {PodNeeds.of(profile).priority for profile in profile_set.profiles} - {None}
    assert asked | {environ["FARANDOLE_NOTEBOOK_PRIORITY"]} <= priorities


def test_with_the_chart_users_pods_reach_what_they_do_with_the_manifests_and_nothing_else() -> None:
    (values,) = read("values.yaml")
    policy = values["singleuser"]["networkPolicy"]
    assert policy["egress"] == one("NetworkPolicy", "servers-to-the-internet")["spec"]["egress"]
    assert policy["egressAllowRules"] == {"cloudMetadataServer": False, "nonPrivateIPs": False, "privateIPs": False}
    for name, resources in {"hub": values["hub"], "proxy": values["proxy"]["chp"]}.items():
        (container,) = pods()[name]["spec"]["containers"]
        assert resources["resources"] == container["resources"]


def test_with_the_chart_the_hub_may_create_the_policies_of_users() -> None:
    role, binding = read("chart-access.yaml")
    (policies_rule,) = role["rules"]
    assert policies_rule in one("Role", "hub")["rules"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "hub"}]


def test_the_proxy_routes_by_host_as_the_hub_expects() -> None:
    proxy, hub = (pods()[name]["spec"]["containers"][0] for name in ("proxy", "hub"))
    assert proxy["args"][:4] == ["python", "-m", "hub.host_routing", "configurable-http-proxy"]
    (origins,) = (each["valueFrom"]["secretKeyRef"] for each in proxy["env"] if each["name"] == "FARANDOLE_ORIGINS")
    # The hub and the proxy read this variable from a separate secret, because a change of the other settings must not
    # restart the proxy.
    assert origins == {"name": "proxy-token", "key": "FARANDOLE_ORIGINS", "optional": True}
    assert {"secretRef": {"name": "proxy-token"}} in hub["envFrom"]
    (values,) = read("values.yaml")
    assert values["proxy"]["chp"]["extraCommandLineFlags"] == ["--host-routing"]
    assert values["hub"]["args"][1] == "/opt/farandole/hub/start.py"


def test_the_ingress_lets_large_notebooks_through() -> None:
    (ingress,) = read("site.example/ingress.yaml")
    most = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert int(most.removesuffix("m")) << 20 >= NOTEBOOK_BODY


def test_the_ingress_serves_the_hub_and_the_hosts_of_users() -> None:
    (ingress,) = read("site.example/ingress.yaml")
    (tls,) = ingress["spec"]["tls"]
    rules = ingress["spec"]["rules"]
    assert tls["hosts"] == [rule["host"] for rule in rules] == ["hub.example.org", "*.hub.example.org"]
    port = one("Service", "proxy")["spec"]["ports"][0]["name"]
    for rule in rules:
        (path,) = rule["http"]["paths"]
        assert (path["path"], path["backend"]) == ("/", {"service": {"name": "proxy", "port": {"name": port}}})


@pytest.mark.parametrize(
    ("given", "https", "port"),
    [
        ({}, False, 8000),
        ({"FARANDOLE_DOMAIN": "hub.example.org"}, False, 80),
        ({"FARANDOLE_DOMAIN": "hub.example.org", "FARANDOLE_HTTPS": "yes"}, True, 443),
        ({"FARANDOLE_DOMAIN": "hub.localhost", "FARANDOLE_PUBLIC_PORT": "9000"}, False, 9000),
    ],
)
def test_the_port_at_which_browsers_reach_the_hub(given: dict[str, str], https: bool, port: int) -> None:
    image = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:0.1.0"}
    found = front(Settings.from_environment(given), KubernetesSettings.from_environment({**given, **image}))
    assert (found.https, found.port, found.reached_by) == (https, port, "FARANDOLE_HTTPS=yes" if https else "")
