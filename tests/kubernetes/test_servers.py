"""The rights, home, limits and network policy of a user's pods.

The tests only read the policy, because the cluster's network does not enforce policies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from farandole.datasets.versions.manifest import verify

from hub.process import wait_until
from spawner_config.containers.spawner import PROCESSES
from tests.docker.engines.debian import SetUpError
from tests.docker.engines.remains import CGROUPS
from tests.docker.test_stack import CELL_SECONDS
from tests.kubernetes.node.one_node import NODE
from tests.kubernetes.site import DATA_SET

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

EVICTION_SECONDS = 180.0
NO_RIGHTS = {"CapEff": "0", "CapPrm": "0", "CapBnd": "0", "NoNewPrivs": "1", "Seccomp": "2"}
OTHER_PROCESSES = 200
"""The most processes and threads of a pod that belong to its notebook server and its kernel."""
# The processes are small programs, because thousands of copies of Python would exceed the memory of the pod. They end
# at the end of their input, which the kernel holds.
FORK = """
import os
count = 0
try:
    while True:
        os.posix_spawn("/bin/cat", ["cat"], {})
        count += 1
except BlockingIOError:
    print(count, flush=True)
for _ in range(count):
    os.wait()
"""
START_FORKING = f"""
import subprocess, sys
forking = subprocess.Popen([sys.executable, "-ISc", {FORK!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(forking.stdout.readline().decode())
"""
END_FORKING = "forking.stdin.close(); print(forking.wait())"
PUBLISH = """
import pathlib
pathlib.Path("letters").mkdir()
pathlib.Path("letters/a.txt").write_text("ab")
get_ipython().run_line_magic("dataset", "publish letters letters")
"""
ECHO = "import subprocess; print(subprocess.check_output(['echo', 'still here'], text=True))"


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


def test_the_hub_publishes_a_folder_of_a_publisher_to_a_new_claim(site: Site) -> None:
    with site.kernel("ada") as kernel:
        said = kernel.execute(PUBLISH, deadline=CELL_SECONDS)
    assert "letters@1 is published: 1 file, 2 B, sha256:" in said
    volume = site.get("persistentvolumeclaim", "letters-v1")["spec"]["volumeName"]
    folder = Path(site.get("persistentvolume", volume)["spec"]["hostPath"]["path"])
    assert verify(folder) == said.split()[7]
    assert "letters" not in site.kubectl("get", "pods")


def test_a_server_that_fills_the_disk_of_its_node_is_ended(site: Site) -> None:
    site.browser("filler").start_notebook("little-scratch")
    [container] = site.pods("filler")[""]["spec"]["containers"]
    assert container["resources"]["limits"]["ephemeral-storage"] == "64Mi"
    site.execute("filler", "sh", "-c", "head -c 200M /dev/zero > /tmp/filled")
    wait_until(lambda: not site.browser("filler").has_notebook(), EVICTION_SECONDS)


def test_the_processes_of_one_server_leave_the_hub_and_other_servers_alone(site: Site) -> None:
    kubelet = json.loads(site.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/configz"))["kubeletconfig"]
    assert kubelet["podPidsLimit"] == PROCESSES
    with site.kernel("grace") as other, site.kernel("forker") as kernel:
        started = int(kernel.execute(START_FORKING, deadline=CELL_SECONDS))
        assert PROCESSES - OTHER_PROCESSES < started < PROCESSES
        limit = pod_processes(site, "forker")
        assert limit.read_text().strip() == str(PROCESSES)
        assert int(limit.with_name("pids.current").read_text()) <= PROCESSES
        assert other.execute(ECHO, deadline=60).strip() == "still here"
        site.browser("later").start_notebook()
        assert kernel.execute(END_FORKING, deadline=60).strip() == "0"
        assert kernel.execute(ECHO, deadline=60).strip() == "still here"
    for user in ("forker", "later"):
        site.browser(user).stop_notebook()


def pod_processes(site: Site, user: str) -> Path:
    """Return the file with the process limit of a user's notebook server, in the control groups of this machine."""
    [file] = CGROUPS.glob(f"**/pod{site.pods(user)['']['metadata']['uid']}/pids.max")
    return file
