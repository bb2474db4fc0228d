"""The backends, one module each. A backend defines what has to be set up before ranks form a world."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.driver.world.backends.base import Backend, NoBackend
from farandole.driver.world.backends.horovod import HorovodBackend
from farandole.driver.world.backends.torch import TorchBackend
from farandole.exceptions import UsageError
from farandole.suggestions import did_you_mean

BACKENDS: dict[str, type[Backend]] = {backend.name: backend for backend in (HorovodBackend, TorchBackend, NoBackend)}


def check_backend(name: str) -> None:
    """Raise `UsageError` if there is no backend with this name."""
    if name not in BACKENDS:
        raise UsageError(
            f"there is no backend {name!r}; choose one of {', '.join(BACKENDS)}.{did_you_mean(name, BACKENDS)}"
        )


def choose_backend(wanted: str | None, offered: Sequence[Sequence[str]]) -> Backend:
    """Return the requested backend, or by default the first backend that all workers offer.

    Args:
        wanted: the name of a backend, or None for the default.
        offered: the names of each worker's backends, with that worker's default first.

    Raises:
        UsageError: the backend does not exist, or a worker does not offer it.
    """
    common = [name for name in offered[0] if all(name in names for names in offered)]
    if wanted is None:
        return BACKENDS[common[0]]()
    check_backend(wanted)
    if wanted not in common:
        raise UsageError(
            f"the workers cannot use backend {wanted!r}: it is not installed on all of them. All of them offer "
            f"{', '.join(common)}."
        )
    return BACKENDS[wanted]()
