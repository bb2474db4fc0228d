"""Horovod over its Gloo controller."""

from __future__ import annotations

from typing import Any

from farandole.driver.world.backends.base import Backend, Endpoint, Host, RankAssignment

GLOO_TIMEOUT_SECONDS = 6
"""Timeout of Gloo's connections, 30 s by default: ranks that wait for a lost peer get their error after it."""


class HorovodBackend(Backend):
    """Horovod; each init gets the full environment, because a process keeps the variables of earlier ones.

    Source: ``create_slot_env_vars`` and ``create_run_env_vars`` in ``horovod/runner/gloo_run.py`` of Horovod 0.28.1.
    """

    name = "horovod"
    host = Host.FIRST_WORKER

    def environment(self, assignment: RankAssignment, endpoint: Endpoint, /) -> dict[str, str]:
        """Return HOROVOD_* for one rank."""
        variables = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_HOSTNAME": assignment.address,
            **{f"HOROVOD_{name.upper()}": str(number) for name, number in assignment.numbers.items()},
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_SECONDS),
            "HOROVOD_ELASTIC": "0",
            "HOROVOD_LOG_HIDE_TIME": "1",
        }
        # A world of size 1 has no endpoint, and with these variables Horovod would try to connect to one.
        if endpoint.port:
            variables |= {
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": endpoint.host,
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(endpoint.port),
            }
        return variables | ({"HOROVOD_GLOO_IFACE": endpoint.interface} if endpoint.interface else {})


def slot(assignment: RankAssignment) -> dict[str, Any]:
    """Return the fields of Horovod's ``SlotInfo``."""
    return {"hostname": assignment.address, **assignment.numbers}
