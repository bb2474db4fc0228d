"""The methods of `Cluster` that prepare data on the ranks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.driver.cells.relay import Watch
from farandole.driver.cells.runner import CellRunner
from farandole.driver.control.control_service import ControlService
from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import Progress
from farandole.exceptions import UsageError

if TYPE_CHECKING:
    from distributed import Client

    from farandole.driver.batches.output import BatchOutput
    from farandole.driver.data.engine import DataEngine


class ClusterData:
    """Base class of `Cluster` with Dask on its ranks."""

    _core: ClusterCore
    _control: ControlService
    _loop: LoopThread
    _progress: Progress
    _runner: CellRunner
    _engine: DataEngine | None = None
    _client: Client | None = None

    @property
    def has_dask(self) -> bool:
        """Whether Dask runs on the ranks."""
        return self._engine is not None and self._engine.running

    def dask(self, *, pause_while_training: bool | None = None) -> Client:
        """Start Dask on the ranks, and return its client. A further call returns the same client.

        - Each rank runs a Dask worker in its own process, so that cells use the results of its tasks without a copy.
          The scheduler runs in this process, and ends with it.
        - The client becomes Dask's default: ``compute`` and ``persist`` of Dask collections run on the ranks.
        - Ranks that are added or replaced start a Dask worker as well. When ranks are removed, their data is copied
          to other ranks first. If a rank is lost, its tasks run again elsewhere, and while tasks wait, it is replaced.

        Args:
            pause_while_training: whether tasks wait while a training cell runs. Tasks that have begun continue. None
                keeps what an earlier call has set, which is False at first.

        Raises:
            UsageError: Dask is not installed, a cell is running, or this process runs outside the hub of the workers.
            RankError: a rank cannot start its Dask worker.
        """
        engine = self._engine
        if engine is None or not engine.running:
            engine = self._start_engine(pauses=bool(pause_while_training))
        elif pause_while_training not in {None, engine.pauses}:
            self._control.refuse_while_busy()
            self._loop.call(engine.set_pauses(pauses=bool(pause_while_training)))
        if self._client is None or self._client.status != "running":
            self._client = engine.client()
        return self._client

    def map_batches(
        self,
        stages: Any,
        source: Any,
        to: str | Path,
        *,
        batch_size: int = 64,
        part_rows: int | None = None,
        on_error: str = "raise",
        name: str | None = None,
        watch: Watch | None = None,
    ) -> BatchOutput:
        """Compute results for all rows of a source on the ranks, and write them as Parquet files, which are its parts.

        - Each rank computes one part at a time. The part of a lost rank is computed again, and the rank is replaced.
        - A further call with the same arguments continues with the missing parts, also in a new kernel.
        - The job is a run. It starts Dask on the ranks, and the cluster is busy until its end.

        Args:
            stages: functions of a batch, classes whose instances are called with a batch, or names of stored models
                such as ``iris:3``. A batch is a dict with a list, an array or a tensor for each column.
            source: a list of records, a dataset with ``__len__`` and ``__getitem__``, the path or URL of a folder of
                files or of a Parquet or Arrow file or a folder of them, or a Dask dataframe.
            to: the output folder, which all workers must see.
            batch_size: the number of rows of a batch.
            part_rows: the number of rows of a part, or None for 1,000, or fewer for a small and more for a very large
                source.
            on_error: ``raise`` to end at the first record for which a stage fails, or ``skip`` to leave such records
                out.
            name: the name of the run, or None for the name of the output folder.
            watch: a function that is called with the run when it begins, and that returns another function, which
                refreshes the display of the run. Without it, a line every few seconds shows the progress.

        Raises:
            UsageError: an argument is not valid, the source has no rows, the output folder has another job, or the
                cluster is busy. Nothing was computed, except the partitions of a Dask dataframe without rows.
            RankError: a stage failed, returned no batch, or ended its rank several times, or the job was stopped.
                Parts that are complete are kept.
            ModelError: there is no such model, or it has no example.
        """
        try:
            from farandole.driver.batches.plan import BatchPlan, BatchRequest
            from farandole.driver.cells.batch_run import BatchRun
            from farandole.driver.cells.map_batches import BatchJob, finish, output_of
        except ImportError as exc:
            raise UsageError(
                f"map_batches needs Dask and PyArrow ({exc}); run `pip install 'farandole[data]'`"
            ) from exc
        self._control.refuse_while_busy()
        request = BatchRequest(
            stages=stages,
            source=source,
            to=to,
            batch_size=batch_size,
            part_rows=part_rows,
            on_error=on_error,
            name=name,
        )
        plan = BatchPlan.of(request)
        with closing(plan.open()) as folder:
            if not folder.missing:
                # The driver may have been killed before it had written the list of records that were left out.
                finish(folder)
                return output_of(folder, None)
            client, engine = self.dask(), self._engine
            assert engine is not None
            run = BatchRun(self._core, self._runner.store, self._progress, watch)
            job = BatchJob(self._core, engine, client, plan=plan, folder=folder, run=run)
            return job.compute(self._loop, self._progress)

    def _start_engine(self, *, pauses: bool) -> DataEngine:
        try:
            from farandole.driver.data.engine import DataEngine
        except ImportError as exc:
            raise UsageError(f"Dask is not installed here ({exc}); run `pip install 'farandole[data]'`") from exc
        self._control.refuse_while_busy()
        self._end_engine()
        engine = DataEngine(self._core, pauses=pauses, progress=self._progress)
        try:
            self._loop.call(engine.start())
        except BaseException:
            self._loop.call(engine.close())
            raise
        self._engine = self._core.service = engine
        return engine

    def _end_engine(self) -> None:
        """End Dask on the ranks, if it runs."""
        engine, client = self._engine, self._client
        self._engine = self._client = self._core.service = None
        if client is not None:
            client.close()
        if engine is not None:
            self._loop.call(engine.close())
