"""The status of Dask on the ranks, which drivers publish for the panel. Importing this module does not import Dask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farandole.reading import check_types


@dataclass(frozen=True, kw_only=True)
class DaskWorker:
    """Dask on the ranks of one worker.

    - ``running`` counts the tasks that threads execute, and ``waiting`` the others that Dask has assigned to the ranks.
    - ``done`` counts the tasks that the ranks have completed since Dask started on them.
    - ``memory`` and ``spilled`` are the bytes of results in memory and on disk. ``memory_limit`` is for all that the
      processes of the ranks keep in memory.
    - ``paused`` says why the ranks begin no task: ``memory`` if a rank has little memory left, ``training`` if tasks
      wait while a training cell runs, or None. In a pause for training, no task counts as running.
    """

    running: int
    waiting: int
    done: int
    memory: int
    memory_limit: int
    spilled: int
    paused: str | None

    @property
    def busy(self) -> bool:
        """Whether the ranks have tasks. Their server does not count as idle then; see `DataEngine`."""
        return self.running + self.waiting > 0


@dataclass(frozen=True, kw_only=True)
class DaskStatus:
    """The progress of Dask's tasks, and Dask on each worker by the worker's name.

    Of ``tasks``, ``done`` are completed, and ``failed`` have raised an error or need the result of a failed task. If
    new tasks come after all others have ended, only the new ones count.
    """

    tasks: int
    done: int
    failed: int
    workers: Mapping[str, DaskWorker]

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> DaskStatus:
        """Return the status in an untrusted JSON object. Raises ValueError if it is not valid."""
        known: dict[str, Any] = {name: record.get(name) for name in cls.__dataclass_fields__}
        check_types(known, KINDS, "the status of Dask")
        workers = known["workers"]
        check_types(workers, dict.fromkeys(workers, "object"), "the status of Dask")
        return cls(**{**known, "workers": {name: _worker(one) for name, one in workers.items()}})


def _worker(record: Mapping[str, Any]) -> DaskWorker:
    known: dict[str, Any] = {name: record.get(name) for name in DaskWorker.__dataclass_fields__}
    check_types(known, KINDS, "the status of Dask")
    return DaskWorker(**known)


COUNTS = ("tasks", "done", "failed", "running", "waiting", "memory", "memory_limit", "spilled")
KINDS = {**dict.fromkeys(COUNTS, "count"), "workers": "object", "paused": "pause or null"}
"""The types of the values in a status."""
