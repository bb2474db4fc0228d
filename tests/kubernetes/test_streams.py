"""The NATS server in a pod: users publish and read over encrypted connections, and the next pod has their streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docker.test_streams import CELL_SECONDS, CONNECT, PUBLISH, READ

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

USER = "ada"
ROLLOUT_SECONDS = 120


def test_a_users_pod_publishes_and_reads_over_an_encrypted_connection(site: Site) -> None:
    address = site.get("service", "streams")["spec"]["clusterIP"]
    with site.kernel(USER) as kernel:
        found = kernel.execute(CONNECT + PUBLISH + READ, deadline=CELL_SECONDS)
    assert found == f"READ secret tls://{address}:4222\n"


@pytest.mark.release
def test_the_next_pod_of_the_server_has_the_records(site: Site) -> None:
    with site.kernel(USER) as kernel:
        kernel.execute(CONNECT + PUBLISH, deadline=CELL_SECONDS)
        site.kubectl("rollout", "restart", "deployment/streams")
        site.kubectl("rollout", "status", "deployment/streams", f"--timeout={ROLLOUT_SECONDS}s")
        assert "READ secret" in kernel.execute(CONNECT + READ, deadline=CELL_SECONDS)


def test_only_the_hub_and_its_nats_server_have_the_secret(site: Site) -> None:
    having = {
        pod["metadata"]["labels"]["component"]
        for pod in site.get("pods")["items"]
        if "streams-secret" in str(pod["spec"])
    }
    assert having == {"hub", "streams"}
