"""The methods of `Cluster` that prepare data on the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.driver.control.control_service import ControlService
from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import Progress
from farandole.exceptions import UsageError

if TYPE_CHECKING:
    from distributed import Client

    from farandole.driver.data.engine import DataEngine


class ClusterData:
    """Base class of `Cluster` with Dask on its ranks."""

    _core: ClusterCore
    _control: ControlService
    _loop: LoopThread
    _progress: Progress
    _engine: DataEngine | None = None
    _client: Client | None = None

    def dask(self, *, pause_while_training: bool = False) -> Client:
        """Start Dask on the ranks, and return its client. A further call returns the same client.

        - Each rank runs a Dask worker in its own process, so that cells use the results of its tasks without a copy.
          The scheduler runs in this process, and ends with it.
        - The client becomes Dask's default: ``compute`` and ``persist`` of Dask collections run on the ranks.
        - Ranks that are added or replaced start a Dask worker as well. When ranks are removed, their data is copied
          to other ranks first. If a rank is lost, its tasks run again elsewhere.

        Args:
            pause_while_training: whether tasks wait while a training cell runs. Tasks that have begun continue.

        Raises:
            UsageError: Dask is not installed, a cell is running, or this process runs outside the hub of the workers.
            RankError: a rank cannot start its Dask worker.
        """
        if self._client is not None and self._client.status == "running":
            return self._client
        try:
            from farandole.driver.data.engine import DataEngine
        except ImportError as exc:
            raise UsageError(f"Dask is not installed here ({exc}); run `pip install 'farandole[data]'`") from exc
        self._control.refuse_while_busy()
        self._end_engine()
        engine = DataEngine(self._core, pauses=pause_while_training, progress=self._progress)
        try:
            self._loop.call(engine.start())
            self._client = engine.client()
        except BaseException:
            self._loop.call(engine.close())
            raise
        self._engine = self._core.service = engine
        return self._client

    def _end_engine(self) -> None:
        """End Dask on the ranks, if it runs."""
        engine, client = self._engine, self._client
        self._engine = self._client = self._core.service = None
        if client is not None:
            client.close()
        if engine is not None:
            self._loop.call(engine.close())
