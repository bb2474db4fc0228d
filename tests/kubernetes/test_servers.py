"""The rights, home and network policy of a user's pods.

The tests only read the policy, because the cluster's network does not enforce policies.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.docker.engines.debian import SetUpError
from tests.docker.test_stack import CELL_SECONDS
from tests.kubernetes.site import DATA_SET

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

EVICTION_SECONDS = 180.0
NO_RIGHTS = {"CapEff": "0", "CapPrm": "0", "CapBnd": "0", "NoNewPrivs": "1", "Seccomp": "2"}


def test_a_users_pods_have_no_rights_and_no_token(site: Site) -> None:
    with site.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 1", deadline=CELL_SECONDS)
        for server in ("", "main-w0"):
            assert site.execute("ada", "id", "-u", server=server).strip() == "1000"
            status = site.execute("ada", "cat", "/proc/1/status", server=server)
            rights = dict(line.split(":\t", 1) for line in status.splitlines())
            assert {key: f"{int(rights[key], 16):x}" for key in NO_RIGHTS} == NO_RIGHTS
            found = site.execute(
                "ada", "sh", "-c", "ls /var/run/secrets /run/secrets 2>/dev/null || true", server=server
            )
            assert found.strip() == ""
            spec = site.pods("ada")[server]["spec"]
            assert spec["automountServiceAccountToken"] is False
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
            assert [volume for volume in spec["volumes"] if "hostPath" in volume] == []
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)


@pytest.mark.parametrize("user", ["ada", "grace"])
def test_a_users_policy_selects_the_users_own_pods(site: Site, user: str) -> None:
    for each in ("ada", "grace"):
        if not site.browser(each).has_notebook():
            site.browser(each).start_notebook()
    spec = site.get("networkpolicy", f"farandole-user-{user}")["spec"]
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
    [rule], [way_out] = spec["ingress"], spec["egress"]
    assert rule == {"from": [{"podSelector": spec["podSelector"]}]}
    assert way_out == {"to": [{"podSelector": spec["podSelector"]}]}
    labels = ",".join(f"{key}={value}" for key, value in spec["podSelector"]["matchLabels"].items())
    selected = {pod["metadata"]["name"] for pod in site.get("pods", f"--selector={labels}")["items"]}
    assert selected == {pod["metadata"]["name"] for pod in site.pods(user).values()}
    assert selected


def test_the_home_outlives_the_pod(site: Site) -> None:
    with site.kernel("ada") as kernel:
        kernel.execute("open('kept.txt', 'w').write('still here')", deadline=60)
    before = site.pods("ada")[""]["metadata"]["uid"]
    site.browser("ada").stop_notebook()
    with site.kernel("ada") as kernel:
        assert kernel.execute("print(open('kept.txt').read())", deadline=60).strip() == "still here"
    assert site.pods("ada")[""]["metadata"]["uid"] != before


def test_a_data_set_is_readable_for_all_and_read_only(site: Site) -> None:
    volume = site.get("persistentvolumeclaim", DATA_SET)["spec"]["volumeName"]
    folder = Path(site.get("persistentvolume", volume)["spec"]["hostPath"]["path"])
    (folder / "first.txt").write_text("one, two")
    with site.kernel("grace"):
        assert site.execute("grace", "cat", f"/data/{DATA_SET}/first.txt") == "one, two"
        with pytest.raises(SetUpError, match="Read-only file system"):
            site.execute("grace", "touch", f"/data/{DATA_SET}/mine")


def test_a_server_that_fills_the_disk_of_its_node_is_ended(site: Site) -> None:
    site.browser("filler").start_notebook("little-scratch")
    [container] = site.pods("filler")[""]["spec"]["containers"]
    assert container["resources"]["limits"]["ephemeral-storage"] == "64Mi"
    site.execute("filler", "sh", "-c", "head -c 200M /dev/zero > /tmp/filled")
    wait_until(lambda: not site.browser("filler").has_notebook(), EVICTION_SECONDS)
