"""Servers that cannot start. Users see the reason, and no part of such a server remains."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.clients.kernel import CellError
from tests.docker.hub_api import HubApi
from tests.docker.test_stack import CELL_SECONDS
from tests.kubernetes.site import GPU, claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.site import Site

COUNT_SECONDS = 60


@contextmanager
def quota(site: Site, **hard: str) -> Iterator[None]:
    """Change the limits of the namespace's quota, and restore them at the end."""
    before = site.get("resourcequota", "all-servers")["spec"]["hard"]
    _set_quota(site, before | hard)
    try:
        yield
    finally:
        _set_quota(site, before)


def _set_quota(site: Site, hard: dict[str, str]) -> None:
    site.kubectl("patch", "resourcequota", "all-servers", "--patch", json.dumps({"spec": {"hard": hard}}))
    wait_until(lambda: site.get("resourcequota", "all-servers").get("status", {}).get("hard") == hard, COUNT_SECONDS)


@pytest.mark.release
@pytest.mark.usefixtures("gpus")
def test_a_cluster_with_too_many_gpus_is_cancelled_completely(site: Site) -> None:
    with site.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        with pytest.raises(CellError, match=rf"(?s)0/1 nodes are available: 1 Insufficient {GPU}"):
            kernel.execute("%cluster start --workers 3 --profile one-gpu", deadline=CELL_SECONDS)
        site.wait_gone("ada", "main-w0", "main-w1", "main-w2")
        kernel.execute("%cluster start --workers 2 --profile one-gpu", deadline=CELL_SECONDS)
        pods = site.pods("ada")
        limits = [pods[name]["spec"]["containers"][0]["resources"]["limits"][GPU] for name in ("main-w0", "main-w1")]
        assert limits == ["1", "1"]
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
        site.wait_gone("ada", "main-w0", "main-w1")


@pytest.mark.parametrize(
    ("profile", "reason"),
    [("huge", "0/1 nodes are available: 1 Insufficient memory"), ("no-image", "registry.invalid/nothing:1")],
)
def test_an_impossible_server_is_given_up_with_the_reason(site: Site, profile: str, reason: str) -> None:
    api = HubApi(site, "grace")
    last = api.start("grace", "main-w0", role="worker", profile=profile)
    assert last.get("failed"), last
    assert reason in last["message"]
    site.wait_gone("grace", "main-w0")


def test_a_home_of_another_user_is_refused(site: Site) -> None:
    """Such a home may come from an earlier user whose name had the same short form."""
    body = claim("farandole-home-lise")
    body["metadata"]["annotations"] = {"hub.jupyter.org/username": "another"}
    site.kubectl("apply", "--filename=-", typed=json.dumps(body))
    try:
        last = HubApi(site, "lise").start("lise")
        assert last.get("failed"), last
        assert "volume claim farandole-home-lise belongs to the user 'another'" in last["message"]
        assert not site.pods("lise")
    finally:
        site.kubectl("delete", "pvc", "farandole-home-lise")


def test_a_users_policy_and_home_carry_the_full_name(site: Site) -> None:
    api = HubApi(site, "grace")
    assert api.start("grace", "main-w0", role="worker", profile="cpu").get("ready")
    for kind, name in (("networkpolicy", "farandole-user-grace"), ("pvc", "farandole-home-grace")):
        assert site.get(kind, name)["metadata"]["annotations"]["hub.jupyter.org/username"] == "grace"
    api.stop("grace", "main-w0")
    site.wait_gone("grace", "main-w0")


def test_an_exhausted_quota_is_reported(site: Site) -> None:
    api = HubApi(site, "grace")
    pods = len(site.get("pods")["items"])
    with quota(site, pods=str(pods)):
        last = api.start("grace", "main-w0", role="worker", profile="cpu")
        assert last.get("failed"), last
        assert "A quota of this hub is used up" in last["message"]
        assert f"limited: pods={pods}" in last["message"]
    assert api.start("grace", "main-w0", role="worker", profile="cpu").get("ready")
    api.stop("grace", "main-w0")
    site.wait_gone("grace", "main-w0")
