"""Horovod over its Gloo controller."""

from __future__ import annotations

from typing import Any

from farandole.driver.world.backends.base import Backend, Endpoint, Host, Seat

GLOO_TIMEOUT_SECONDS = 6


class HorovodBackend(Backend):
    """Horovod; the full environment is set at every init, since a process keeps what an earlier one left.

    Source: ``create_slot_env_vars`` and ``create_run_env_vars`` in ``horovod/runner/gloo_run.py`` of Horovod 0.28.1.
    """

    name = "horovod"
    host = Host.FIRST_WORKER

    def environment(self, seat: Seat, endpoint: Endpoint, /, *, interface: str | None) -> dict[str, str]:
        """Return HOROVOD_* for one rank."""
        variables = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_HOSTNAME": seat.address,
            "HOROVOD_RANK": str(seat.rank),
            "HOROVOD_SIZE": str(seat.size),
            "HOROVOD_LOCAL_RANK": str(seat.local_rank),
            "HOROVOD_LOCAL_SIZE": str(seat.local_size),
            "HOROVOD_CROSS_RANK": str(seat.cross_rank),
            "HOROVOD_CROSS_SIZE": str(seat.cross_size),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_SECONDS),
            "HOROVOD_ELASTIC": "0",
            "HOROVOD_LOG_HIDE_TIME": "1",
        }
        if endpoint.port:  # a rank alone meets nobody, and with an address Horovod would ask there
            variables |= {
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": endpoint.host,
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(endpoint.port),
            }
        return variables | ({"HOROVOD_GLOO_IFACE": interface} if interface else {})


def slot(seat: Seat) -> dict[str, Any]:
    """Return a seat as Horovod's SlotInfo fields."""
    return {
        "hostname": seat.address,
        "rank": seat.rank,
        "local_rank": seat.local_rank,
        "cross_rank": seat.cross_rank,
        "size": seat.size,
        "local_size": seat.local_size,
        "cross_size": seat.cross_size,
    }
