"""The public class `Cluster`, which is a synchronous interface to `ClusterCore`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self, TypeVar

from farandole.driver.cells.background import BackgroundRun
from farandole.driver.cells.folders import Copied, FolderCopy, here, own_name
from farandole.driver.cells.home import home_use
from farandole.driver.cells.relay import Show, Watch
from farandole.driver.cells.runner import CellRunner, TrainRequest
from farandole.driver.cells.transfer import Pulls, pack, push
from farandole.driver.control.control_service import ControlService
from farandole.driver.control.stop import stop_cluster
from farandole.driver.core.connect import connect
from farandole.driver.core.connected import is_connected
from farandole.driver.core.status import ClusterStatus, status_of
from farandole.driver.data.cluster_data import ClusterData
from farandole.driver.kernels.group import RankGroup
from farandole.driver.loop import LoopThread
from farandole.driver.options import Elastic
from farandole.driver.output import Block
from farandole.driver.preflight.result import Preflight
from farandole.driver.workers.starts import SERVER_START_SECONDS
from farandole.driver.workers.worker import Progress, WorkerOptions
from farandole.exceptions import FarandoleError, NoClusterError, UsageError
from farandole.hyperparameters import checked
from farandole.runs.logs import RankLogs
from farandole.runs.origin import origin
from farandole.runs.run import Run
from farandole.runs.store import RunStore

T = TypeVar("T")
CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")


class Cluster(ClusterData):
    """A user's workers and the ranks that run on them.

    - Create a cluster with `Cluster.start` or `Cluster.attach`. A ``with`` statement stops the cluster at the end.
    - Only one cell can run at a time. Starting another cell meanwhile raises `UsageError`.
    - `interrupt` and `status` may be called from any thread while a cell is running.
    """

    def __init__(
        self,
        name: str,
        *,
        local: bool = False,
        hub_url: str | None = None,
        token: str | None = None,
        backend: str | None = None,
        store: RunStore | None = None,
        progress: Progress = print,
    ) -> None:
        if not CLUSTER_NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a cluster's name; use 1 to 24 lower-case letters, digits and inner hyphens"
            )
        runs = store or RunStore()
        self.name = name
        self._progress = progress
        self._pulls = Pulls()
        self._logs = RankLogs()
        self._loop = LoopThread()
        try:
            self._core = self._loop.call(
                connect(name, local=local, hub_url=hub_url, token=token, backend=backend, on_notice=progress)
            )
            self._core.router.on_value = self._pulls.put
        except BaseException:
            self._loop.close()
            raise
        self._runner = CellRunner(self._core, self._loop, runs, logs=self._logs, progress=progress, local=local)
        self._control = ControlService(self._core, self._runner, local=local, origin=origin(), progress=progress)

    @classmethod
    def start(
        cls,
        workers: int | None = None,
        *,
        name: str = "main",
        profile: str | None = None,
        ranks: int | None = None,
        backend: str | None = None,
        timeout: float = SERVER_START_SECONDS,
        wait: bool = False,
        **where: Any,
    ) -> Self:
        """Start a cluster and form its world.

        Args:
            workers: the number of workers. The default is 2, or 1 with ``local=True``, which allows no other number.
            name: 1 to 24 lower-case letters, digits and inner hyphens.
            profile: the name of one of the hub's profiles, or None for the hub's default.
            ranks: the number of ranks on each worker, or None for the number that the profile sets.
            backend: ``horovod``, ``torch`` or ``none``. None means Horovod if it is installed, and torch otherwise.
            timeout: how many seconds all workers may take to become ready, not counting any time in a queue for GPUs.
            wait: whether to wait in a queue if no GPU is available.
            where: further arguments of the constructor: ``local=True`` for a cluster on this machine, ``hub_url`` and
                ``token`` for another hub, ``store``, and ``progress``.

        Raises:
            UsageError, ClusterExistsError, WorkerStartError, HubError: the start failed, and no new worker is left.
        """
        count = workers if workers is not None else (1 if where.get("local") else 2)
        for what, number in (("workers", count), ("ranks", 1 if ranks is None else ranks)):
            if number < 1:
                raise UsageError(f"the number of {what} must be at least 1, not {number}")
        cluster = cls(name, backend=backend, **where)
        options = WorkerOptions(cluster=name, profile=profile, ranks=ranks, wait=wait, backend=backend)
        return cluster._open(cluster._core.start(count, options, cluster._progress, timeout))

    @classmethod
    def attach(cls, name: str = "main", *, timeout: float = SERVER_START_SECONDS, **where: Any) -> Self:
        """Attach to a running cluster, for example after a restart of the driver, and take over its runs.

        Runs that are still in progress, and runs that ended without a driver, appear in `background` with their
        complete output.

        Raises:
            NoClusterError: no cluster with this name is running. Its runs have been completed from the journals that
                its workers persisted.
        """
        cluster = cls(name, **where)
        try:
            cluster._open(cluster._core.attach(cluster._progress, timeout))
        except NoClusterError:
            cluster._runner.complete()
            raise
        cluster._runner.take_up()
        return cluster

    @classmethod
    def running(cls, **where: Any) -> dict[str, int]:
        """Return the user's running clusters and how many workers each has."""
        with closing(cls("main", **where)) as cluster:
            return cluster._loop.call(cluster._core.source.clusters())

    @classmethod
    def stop_named(cls, name: str, **where: Any) -> None:
        """Stop the workers of a cluster that this process does not control, even if they are starting or hang.

        The drivers that lead the cluster end it, so that they do not start its workers again.

        Raises:
            NoClusterError: there is no such cluster.
        """
        with closing(cls(name, **where)) as cluster:
            cluster._loop.call(stop_cluster(cluster._core.source, name, cluster.store.folder))

    @property
    def store(self) -> RunStore:
        """The store for new runs. Assign another store to replace it."""
        return self._runner.store

    @store.setter
    def store(self, store: RunStore) -> None:
        self._runner.store = store

    @property
    def ended(self) -> str:
        """The reason why the cluster was stopped from outside or did not start, or an empty string otherwise."""
        return self._core.ended

    def is_connected(self, hub_url: str | None = None) -> bool:
        """Return whether all ranks answer, so that `attach` with this ``hub_url`` would find nothing else."""
        known = {*self.background, *self._runner.going}
        return self._loop.call(is_connected(self._core, hub_url, store=self.store, known=known))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self._core.group.kernels)

    @property
    def backend(self) -> str:
        """The name of the backend in use."""
        return self._core.backend

    def run(self, code: str, *, ranks: Sequence[int] | None = None, show: Show | None = None) -> list[Block]:
        """Execute a cell on all ranks, or only on ``ranks``, and return the output. Output that ranks share is merged.

        Args:
            show: called in this thread with each block of output as it arrives; the returned list is then empty.

        Raises:
            RankError: the cell failed on a rank.
            RankDiedError: a rank's process ended.
            UsageError: the cluster is busy or has no such rank.
        """
        self._check(ranks)
        self._control.refuse_while_busy()
        return self._runner.run(code, ranks=ranks, show=show)

    def train(
        self,
        code: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        options: Mapping[str, Any] | None = None,
        resume: str | None = None,
        show: Show | None = None,
        watch: Watch | None = None,
        detach: bool = False,
        elastic: Elastic | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Run:
        """Execute a training cell on all ranks as a run, and return the run.

        Args:
            config: hyper-parameters, which take precedence over those that the cell gives to ``fd.config``.
            elastic: the options of an elastic run, which continues when ranks are lost and lets new ranks join.
            resume: the id, the beginning of the id, or the name of the run from whose checkpoint the cell's
                ``fd.checkpoint`` continues. An empty string means the most recent run with a checkpoint and with this
                ``name`` or, without a ``name``, the most recent run with a checkpoint that was started in this working
                directory.
            watch: a function that is called with the run when the run begins, and that returns another function,
                which refreshes the display of the run.
            detach: whether to return at once. The run continues in the `background`; `Run.wait` waits for its end.

        Raises:
            RankError, RankDiedError: the run failed. Its files are kept.
            UsageError: the cluster is busy, the home is full, the cell or the cluster is not suitable for an elastic
                run, there is no checkpoint to resume from, or a hyper-parameter is invalid. No run was created.
            RunNotFoundError: the run to resume does not exist. No run was created.
        """
        self._control.refuse_while_busy()
        request = TrainRequest(
            code=code,
            name=name,
            backend=backend,
            config=checked(config or {}),
            options=options or {},
            resume=resume,
            elastic=elastic,
        )
        return self._runner.train(request, show=show, watch=watch, detach=detach)

    @property
    def background(self) -> Mapping[str, BackgroundRun]:
        """The runs that no cell is waiting for, indexed by id: detached runs, and runs that `attach` has taken over."""
        return self._runner.background

    def stop_run(self, run_id: str) -> Run:
        """Stop a run in the `background` on all ranks, wait for its end, and return the run.

        Raises:
            DeadlineError: the run does not end within 15 seconds.
        """
        return self._runner.stop(run_id)

    def push(self, values: Mapping[str, Any], *, ranks: Sequence[int] | None = None) -> None:
        """Set variables on all ranks, or only on ``ranks``.

        If ``ranks`` is None and the pickled values are 1 MiB or larger, they are sent only to rank 0, which broadcasts
        them to the other ranks. With backend ``none``, all values are sent to each rank.

        Raises:
            TransferError: a value cannot be pickled, or a rank cannot unpickle it.
        """
        self._check(ranks)
        self._control.refuse_while_busy()
        blob = pack(values)
        broadcast = ranks is None and self.backend != "none"
        self._loop.call(self._cell(lambda group: push(group, self._kernels(ranks), blob, broadcast=broadcast)))

    def pull(self, *names: str, ranks: Sequence[int] | None = None) -> dict[int, dict[str, Any]]:
        """Return variables of all ranks, or only of ``ranks``, indexed by rank and name.

        Raises:
            TransferError: a rank has no such variable, or the variable cannot be pickled or unpickled.
        """
        self._check(ranks)
        return self._loop.call(self._pulls.pull(self._core.group, self._kernels(ranks), names))

    def put(self, folder: str | Path, target: str = "") -> Copied:
        """Copy a folder of this machine to rank 0's machine, by default to a folder with its name in the user's home.

        A relative ``target`` is relative to the home. Files that are there already are not sent, and a copy that was
        cut continues. Returns how much was sent. Raises TransferError if a file cannot be read or written.
        """
        self._control.refuse_while_busy()
        source = here(folder)
        there = str(target) or own_name(source.name, "on the workers")
        copy = FolderCopy(self._progress)
        return self._loop.call(self._cell(lambda group: copy.put(group, source, there)), pump=copy.show)

    def get(self, folder: str, target: str | Path = "") -> Copied:
        """Copy a folder of rank 0's machine to this machine, by default to one with its name here, as `put` does."""
        self._control.refuse_while_busy()
        goal = here(target or own_name(Path(folder).name, "on this machine"))
        copy = FolderCopy(self._progress)
        return self._loop.call(self._cell(lambda group: copy.get(group, str(folder), goal)), pump=copy.show)

    def scale(self, workers: int) -> None:
        """Start or stop workers until the cluster has this many. Ranks on remaining workers keep their variables."""
        if workers < 1:
            raise UsageError(f"a cluster needs at least 1 worker, not {workers}; `%cluster stop` ends it")
        self._loop.call(self._core.scale(workers, self._progress))

    def interrupt(self) -> None:
        """Stop the running cell on all ranks within 5 seconds. Must be called from a thread other than the cell's."""
        self._loop.call(self._core.interrupt())

    def status(self) -> ClusterStatus:
        """Return the states of workers and ranks, when idle workers will be stopped, and the use of GPUs and home."""
        call, core = self._loop.call, self._core
        return status_of(core, call(core.source.gpus()), call(core.infos()), call(home_use(core)))

    def check(self, model: str = "", batch: str = "") -> Preflight:
        """Check all ranks and the network between them before training, and return the measurements and the faults.

        ``model`` names a ``torch.nn.Module`` on the ranks, and the result says whether it fits or on which mesh.
        ``batch`` names a batch of its input or a tuple that begins with one, and adds the speed with each ``fd.sync``.

        Raises:
            UsageError: a cell is running, or there is no such model or batch on the ranks.
            DeadlineError: a rank does not answer.
            RankError: a check failed on a rank.
        """
        self._control.refuse_while_busy()
        core = self._core
        return self._loop.call(core.check(self._progress, model=model, batch=batch), on_interrupt=core.interrupt)

    def logs(self, rank: int, *, lines: int = 100) -> str:
        """Return the last lines of a rank's printed output across all cells."""
        self._check([rank])
        return self._logs.tail(rank, lines)

    def stop(self) -> None:
        """Stop all runs and workers, wait until they have ended, and close the connection."""
        try:
            for run_id in self.background:
                self.stop_run(run_id)
            self._end_engine()
            # The control service ends before the workers, so that no request from outside can start new workers.
            self._loop.call(self._control.end())
            self._loop.call(self._core.stop())
        finally:
            self.close()

    def close(self) -> None:
        """Disconnect. Workers and runs continue for a later `attach`, but the worker of a local cluster is stopped."""
        try:
            self._end_engine()
            self._loop.call(self._control.end())
            self._runner.let_go()
            self._loop.call(self._core.close())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            self.stop()
        except FarandoleError as exc:
            if error is None:
                raise
            # The error of the `with` block is the one to mend, so an unreachable hub must not hide it.
            self._progress(f"cluster {self.name!r} may still be running: {exc}")

    def __repr__(self) -> str:
        return str(status_of(self._core))

    def _repr_html_(self) -> str:
        return status_of(self._core).html()

    def _open(self, work: Any) -> Self:
        try:
            # The control service begins first, because the panel would otherwise show a cluster without a driver.
            self._loop.call(self._control.begin())
            self._loop.call(work)
        except BaseException:
            self.close()
            raise
        return self

    def _check(self, ranks: Sequence[int] | None) -> None:
        """Raise UsageError if one of ``ranks`` is not in the cluster."""
        for rank in ranks or ():
            if not 0 <= rank < self.size:
                raise UsageError(f"there is no rank {rank}: cluster {self.name!r} has the ranks 0-{self.size - 1}")

    def _kernels(self, ranks: Sequence[int] | None) -> list[Any]:
        kernels = self._core.group.kernels
        return kernels if ranks is None else [kernels[rank] for rank in ranks]

    async def _cell(self, work: Callable[[RankGroup], Awaitable[T]]) -> T:
        async with self._core.cell(self._progress):
            return await work(self._core.group)
