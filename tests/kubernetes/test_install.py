"""Install the manifests on a real cluster, and check the rights of the service accounts of the hub and the proxy."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hub.process import local_session, wait_until
from tests.docker.ports import HTTP, quiet_port
from tests.docker.remote_hub import ADMIN
from tests.kubernetes.site import NAMESPACE

if TYPE_CHECKING:
    from tests.kubernetes.node.one_node import OneNode
    from tests.kubernetes.site import Site

HUB, PROXY = (f"system:serviceaccount:{NAMESPACE}:{name}" for name in ("hub", "proxy"))
FORWARD_SECONDS = 60
KINDS = (
    "namespace",
    "serviceaccount",
    "role.rbac.authorization.k8s.io",
    "rolebinding.rbac.authorization.k8s.io",
    "configmap",
    "secret",
    "service",
    "deployment.apps",
    "persistentvolumeclaim",
    "resourcequota",
    "priorityclass.scheduling.k8s.io",
    "networkpolicy.networking.k8s.io",
)


def test_the_api_server_accepts_all_manifests(site: Site) -> None:
    lines = site.node.kubectl("apply", "--dry-run=server", "-k", str(site.folder)).splitlines()
    assert all(line.endswith("(server dry run)") for line in lines), lines
    assert {line.split("/")[0] for line in lines} == set(KINDS)


def test_applying_the_manifests_again_restarts_nothing(site: Site) -> None:
    before = {name: site.component(name) for name in ("hub", "proxy")}
    lines = site.node.kubectl("apply", "-k", str(site.folder)).splitlines()
    assert [line for line in lines if line.endswith(" created")] == []
    for name in before:
        site.kubectl("rollout", "status", f"deployment/{name}", "--timeout=60s")
    assert {name: site.component(name) for name in before} == before


def test_the_administrator_logs_in_over_a_forwarded_port(site: Site) -> None:
    port = quiet_port(HTTP)
    command = site.node.command("--namespace", NAMESPACE, "port-forward", "service/proxy", f"{port}:80")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as forward:
        try:
            wait_until(lambda: _answers(f"http://127.0.0.1:{port}/hub/login"), FORWARD_SECONDS)
        finally:
            forward.terminate()
    headers = {"Authorization": f"token {site.browser(ADMIN).make_token()}"}
    users = local_session().get(f"{site.url}/hub/api/users", headers=headers, timeout=30).json()
    assert ADMIN in {user["name"] for user in users}


def _answers(url: str) -> bool:
    try:
        return local_session().get(url, timeout=5).ok
    except OSError:
        return False


@pytest.mark.parametrize(
    ("who", "verb", "what", "where", "may"),
    [
        (HUB, "create", "pods", NAMESPACE, True),
        (HUB, "delete", "pods", NAMESPACE, True),
        (HUB, "create", "persistentvolumeclaims", NAMESPACE, True),
        (HUB, "create", "networkpolicies", NAMESPACE, True),
        (HUB, "create", "pods", "default", False),
        (HUB, "list", "pods", "kube-system", False),
        (HUB, "get", "secrets", NAMESPACE, False),
        (HUB, "get", "secrets", "kube-system", False),
        (HUB, "create", "pods/exec", NAMESPACE, False),
        (HUB, "delete", "persistentvolumeclaims", NAMESPACE, False),
        (HUB, "create", "rolebindings", NAMESPACE, False),
        (HUB, "impersonate", "serviceaccounts", NAMESPACE, False),
        (HUB, "patch", "resourcequotas", NAMESPACE, False),
        (HUB, "get", "nodes", "", False),
        (PROXY, "get", "pods", NAMESPACE, False),
        (f"system:serviceaccount:{NAMESPACE}:default", "get", "pods", NAMESPACE, False),
    ],
)
def test_accounts_have_only_their_rights(
    site: Site, node: OneNode, who: str, verb: str, what: str, where: str, *, may: bool
) -> None:
    place = ["--namespace", where] if where else []
    resource, _, part = what.partition("/")
    answer = node.try_kubectl("auth", "can-i", verb, resource, f"--subresource={part}", f"--as={who}", *place)
    assert (answer.stdout.strip(), answer.returncode) == (("yes", 0) if may else ("no", 1)), answer.stderr
