"""The Horovod backend, which uses Horovod's Gloo controller."""

from __future__ import annotations

from typing import Any

from farandole.driver.world.backends.base import Backend, Endpoint, Host, RankAssignment

GLOO_TIMEOUT_SECONDS = 6
"""How many seconds Gloo waits for a connection. Ranks that are waiting for a lost peer raise their error only after
this timeout, so it is shorter than the default of 30 s."""
IDLE_CYCLE_MILLISECONDS = 1000
"""How long the ranks rest between two negotiations if none of them uses Horovod. A rank that does use it wakes at once,
but waits for peers that rest, so this time must be far below Gloo's timeout. Only a Horovod that was built with
images/horovod/build_wheel.py knows the variable."""


class HorovodBackend(Backend):
    """The Horovod backend. Ranks get the full environment for each init, because a process keeps earlier variables.

    Source: ``create_slot_env_vars`` and ``create_run_env_vars`` in ``horovod/runner/gloo_run.py`` of Horovod 0.28.1.
    """

    name = "horovod"
    host = Host.FIRST_WORKER

    def environment(self, assignment: RankAssignment, endpoint: Endpoint, /) -> dict[str, str]:
        """Return the ``HOROVOD_*`` environment variables for one rank."""
        variables = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_HOSTNAME": assignment.address,
            **{f"HOROVOD_{name.upper()}": str(number) for name, number in assignment.numbers.items()},
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_SECONDS),
            "HOROVOD_IDLE_CYCLE_TIME": str(IDLE_CYCLE_MILLISECONDS),
            "HOROVOD_ELASTIC": "0",
            "HOROVOD_LOG_HIDE_TIME": "1",
        }
        # `World.form_alone` opens no endpoint for Horovod, which would try to connect if these variables were set.
        if endpoint.port:
            variables |= {
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": endpoint.host,
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(endpoint.port),
            }
        return variables | ({"HOROVOD_GLOO_IFACE": endpoint.interface} if endpoint.interface else {})


def slot(assignment: RankAssignment) -> dict[str, Any]:
    """Return the fields for Horovod's ``SlotInfo``."""
    return {"hostname": assignment.address, **assignment.numbers}
