"""Endpoints in pods: models and commands that a notebook serves, and programs elsewhere call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub.process import local_session
from images.names import NOTEBOOK, SERVING, registry_prefix, version
from tests.clients.hosts import url_of
from tests.docker.hub_api import HubApi
from tests.docker.test_serving import CELL_SECONDS, OTHER, SAVE, USER, call, serve
from tests.kubernetes.site import DATA_SET, REGISTRY
from tests.registry import RunningRegistry, push_from_engine, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kubernetes.node.one_node import OneNode
    from tests.kubernetes.site import Site

SMALL, FILES, LAB = "serve-small", "serve-files", "serve-lab"


@pytest.fixture(scope="module")
def token(site: Site) -> Iterator[str]:
    """Save the models, serve the one with ONNX, and yield a token that can only call its endpoint."""
    with site.kernel(USER) as kernel:
        kernel.execute(SAVE, deadline=CELL_SECONDS)
    assert "small:1" in serve(site, "small")
    yield serve(site, "token small --days 1").strip()
    HubApi(site, USER).stop(USER, SMALL)
    site.wait_gone(USER, SMALL)


@pytest.fixture
def registry(node: OneNode, tmp_path: Path) -> Iterator[RunningRegistry]:
    """Run a registry in the network of the node."""
    port = REGISTRY.rpartition(":")[2]
    with running(RunningRegistry(tmp_path / "registry", f"{node.address}:{port}", node.enter)) as found:
        yield found


def image(site: Site, server: str) -> str:
    """Return the image of a server of the user."""
    [container] = site.pods(USER)[server]["spec"]["containers"]
    return str(container["image"])


def test_an_endpoint_is_called_from_outside_with_its_token(site: Site, token: str) -> None:
    answer = call(site, token)
    assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [10.0])
    for other in ("", site.browser(OTHER).make_token()):
        assert call(site, other).status_code == 403


@pytest.mark.usefixtures("token")
def test_an_endpoint_has_its_image_and_only_the_home_of_its_user(site: Site) -> None:
    assert image(site, SMALL) == SERVING.tag(version(), registry_prefix())
    spec = site.pods(USER)[SMALL]["spec"]
    claims = [volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert {claim["claimName"] for claim in claims} == {f"farandole-home-{USER}", DATA_SET}
    assert [volume for volume in spec["volumes"] if "hostPath" in volume] == []
    assert spec["automountServiceAccountToken"] is False
    assert site.execute(USER, "id", "-u", server=SMALL).strip() == "1000"


@pytest.mark.usefixtures("token")
def test_the_policy_of_its_user_selects_an_endpoint(site: Site) -> None:
    """A policy that selects a pod admits only connections of the user's own pods, and of the hub and the proxy."""
    spec = site.get("networkpolicy", f"farandole-user-{USER}")["spec"]
    labels = site.pods(USER)[SMALL]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_command_answers_behind_the_login(site: Site) -> None:
    serve(site, '--command "python -m http.server --bind 127.0.0.1 {port}" --name files')
    assert image(site, FILES) == NOTEBOOK.tag(version(), registry_prefix())
    url = url_of(site.url, f"/user/{USER}/{FILES}/")
    refused = local_session().get(url, allow_redirects=False, timeout=30)
    assert (refused.status_code, "/hub/api/oauth2/authorize" in refused.headers["Location"]) == (302, True)
    headers = {"Authorization": f"Bearer {serve(site, 'token files --days 1').strip()}"}
    answer = local_session().get(url, headers=headers, timeout=30)
    assert (answer.status_code, "Directory listing" in answer.text) == (200, True)
    assert "endpoint 'files' is stopped" in serve(site, "stop files")
    site.wait_gone(USER, FILES)


@pytest.mark.usefixtures("token")
def test_an_image_serves_without_the_files_of_its_user(site: Site, registry: RunningRegistry) -> None:
    base = registry.reference(SERVING.tag(version()))
    push_from_engine(SERVING.tag(version(), registry_prefix()), base)
    with site.kernel(USER) as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        line = f"%models publish small --to http://{registry.host}/lab/small --base http://{base}"
        assert f"{registry.host}/lab/small:1@sha256:" in kernel.execute(line, deadline=CELL_SECONDS)
        line = f"%serve {REGISTRY}/lab/small:1 --name lab --profile serving"
        assert "small:1" in kernel.execute(line, deadline=CELL_SECONDS)
        infer = 'import farandole as fd; print(fd.Endpoint("lab").infer(input=[[1.0, 2.0, 3.0, 4.0]])["output"])'
        assert "[[10.]]" in kernel.execute(infer, deadline=CELL_SECONDS)
        assert image(site, LAB) == f"{REGISTRY}/lab/small:1"
        spec = site.pods(USER)[LAB]["spec"]
        assert [volume["name"] for volume in spec["volumes"]] == ["shm"]
        assert spec["priorityClassName"] == "farandole-serving"
        assert "farandole/gpus" in str(spec["affinity"]["nodeAffinity"])
        kernel.execute("%serve stop lab", deadline=CELL_SECONDS)
    site.wait_gone(USER, LAB)


def test_an_endpoint_outlives_the_notebook_server(site: Site, token: str) -> None:
    before = site.pods(USER)[SMALL]["metadata"]["uid"]
    with site.kernel(USER):
        pass
    site.browser(USER).stop_notebook()
    site.wait_gone(USER, "")
    assert call(site, token).status_code == 200
    assert site.pods(USER)[SMALL]["metadata"]["uid"] == before
