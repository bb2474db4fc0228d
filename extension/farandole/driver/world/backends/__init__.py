"""How ranks become a world: one module for each backend, which says what to set up and launches nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.driver.world.backends.base import Backend, NoBackend
from farandole.driver.world.backends.horovod import HorovodBackend
from farandole.driver.world.backends.torch import TorchBackend
from farandole.exceptions import UsageError

BACKENDS: dict[str, type[Backend]] = {backend.name: backend for backend in (HorovodBackend, TorchBackend, NoBackend)}


def choose_backend(wanted: str | None, offered: Sequence[Sequence[str]]) -> Backend:
    """Return the wanted backend, or the first that every worker offers.

    Args:
        wanted: a name, or None for the default.
        offered: for each worker the names of the backends it can use, its default first.

    Raises:
        UsageError: no such backend, or a worker lacks it.
    """
    common = [name for name in offered[0] if all(name in names for names in offered)]
    if wanted is None:
        return BACKENDS[common[0]]()
    if wanted not in BACKENDS:
        raise UsageError(f"there is no backend {wanted!r}; choose one of {', '.join(BACKENDS)}")
    if wanted not in common:
        raise UsageError(
            f"the workers cannot use backend {wanted!r}: it is not installed there. They offer {', '.join(common)}."
        )
    return BACKENDS[wanted]()
