"""The IPython magics. Each one parses its arguments, calls `Cluster` or `RunStore`, and displays the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from farandole.driver.cluster import Cluster
from farandole.driver.output import parse_ranks
from farandole.driver.recovery.orphaned_runs import complete
from farandole.driver.workers.starts import SERVER_START_SECONDS
from farandole.driver.world.backends import check_backend
from farandole.exceptions import NoClusterError, TransferError, UsageError
from farandole.hyperparameters import parse
from farandole.notebook import background
from farandole.notebook.arguments import (
    check_variable,
    elastic_options,
    is_number,
    parse_line,
    unknown_action,
    variable_names,
)
from farandole.notebook.help import explained
from farandole.notebook.script import split_line
from farandole.notebook.show import RankPrinter
from farandole.notebook.sinks.trackers import trackers_of
from farandole.notebook.sinks.wandb import PROJECT
from farandole.notebook.tensorboard import check_tensorboard
from farandole.notebook.watcher import Watcher
from farandole.runs.store import RunStore
from farandole.suggestions import did_you_mean

ACTIONS = ("start", "status", "check", "scale", "stop", "attach", "list", "logs", "put", "get", "dask", "interrupt")


@magics_class
class FarandoleMagics(Magics):
    """The magics ``%cluster``, ``%%distributed``, ``%%distributed_train``, ``%push``, ``%pull`` and ``%runs``."""

    cluster: Cluster | None = None

    @magic_arguments()
    @argument(
        "action",
        help="start, status, check, scale N, stop, attach [NAME], list, logs RANK, put DIR, get DIR, dask or interrupt",
    )
    @argument("value", nargs="?", help="the number of workers, the cluster's name, the rank or the folder")
    @argument("--workers", "-w", type=int, help="number of workers to start (default 2; 1 with --local)")
    @argument("--profile", "-p", help="a profile of the hub's spawn page for the workers")
    @argument("--ranks", "-r", type=int, help="ranks on each worker (default: the profile's number)")
    @argument("--backend", "-b", help="horovod, torch or none (default: horovod if it is installed)")
    @argument("--name", "-n", help="the cluster's name (default: main)")
    @argument("--timeout", type=float, default=SERVER_START_SECONDS, help="seconds until the workers must be ready")
    @argument("--lines", type=int, default=100, help="number of log lines to show")
    @argument("--model", metavar="NAME", help="the ranks' variable with the model whose memory is predicted")
    @argument("--batch", metavar="NAME", help="the ranks' variable with a batch, to predict the model's speed, too")
    @argument("--to", metavar="DIR", default="", help="the folder to copy to (default: one with the same name)")
    @argument("--wait", action="store_true", help="wait in the queue while no GPU is free")
    @argument("--pause-while-training", action="store_true", help="let Dask's tasks wait while a training cell runs")
    @argument("--hub", metavar="URL", help="start on this hub, after `farandole login URL` (default: the notebook's)")
    @argument("--local", action="store_true", help="start the ranks on this machine, without a hub")
    @argument("--help", "-h", action="store_true", help="explain the action, as `%%cluster start?` does")
    @line_magic("cluster")  # type: ignore[arg-type]  # IPython's types forbid what its documentation teaches
    def cluster_magic(self, line: str) -> Any:
        """Start, inspect, scale and stop the cluster that the other magics use."""
        options = parse_line(self.cluster_magic, line, actions=ACTIONS)
        actions: dict[str, Callable[[argparse.Namespace], Any]] = {name: getattr(self, f"_{name}") for name in ACTIONS}
        if options.action not in actions:
            raise UsageError(unknown_action("%cluster", options.action, ACTIONS))
        if options.help:
            print(explained(f"%cluster {options.action}", actions[options.action], self.cluster_magic.parser))
            return None
        return actions[options.action](options)

    @magic_arguments()
    @argument("--ranks", "-r", help="the ranks to run on, such as 0,2-3 (default: all)")
    @cell_magic
    def distributed(self, line: str, cell: str) -> None:
        """Run the cell on the ranks.

        Output is labelled with the ranks that printed it. Output that several ranks have in common is shown once.
        """
        options = parse_line(self.distributed, line)
        ranks = parse_ranks(options.ranks) if options.ranks is not None else None
        self._cluster().run(cell, ranks=ranks, show=RankPrinter())

    @magic_arguments()
    @argument("--backend", "-b", help="horovod, torch or none (default: the cluster's)")
    @argument("--name", "-n", help="a name for the run")
    @argument("--output", "-o", metavar="VARIABLE", help="assign the run to this variable: .result, .dataframe() ...")
    @argument(
        "--config", metavar="NAME=VALUE", action="append", help="a hyper-parameter for `fd.config`; can be repeated"
    )
    @argument("--elastic", action="store_true", help="continue when ranks are lost or added, from the last commit")
    @argument("--min-ranks", type=int, help="with --elastic: give up with fewer ranks (default: 1)")
    @argument("--max-ranks", type=int, help="with --elastic: the largest number of ranks (default: all)")
    @argument("--lr-rule", help="with --elastic: linear scales learning rates with the number of ranks (default: none)")
    @argument("--hung", type=float, help="with --elastic: seconds of silence after which a rank is lost (default: 30)")
    @argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="continue from a run's checkpoint (default: the newest run's)",
    )
    @argument("--tensorboard", action="store_true", help="also write TensorBoard event files into the run's folder")
    @argument("--mlflow", metavar="URI", help="also send the run to this MLflow tracking server or store")
    @argument(
        "--wandb",
        nargs="?",
        const=PROJECT,
        metavar="PROJECT",
        help=f"also send the run to this project of Weights & Biases (default: {PROJECT})",
    )
    @argument(
        "--detach", "-d", action="store_true", help="return at once; `%%runs wait ID` and `%%runs stop ID` find the run"
    )
    @line_cell_magic
    def distributed_train(self, line: str, cell: str | None = None) -> None:
        """Run a training cell on all ranks, show a live dashboard, and store the cell's code, metrics and logs.

        `%distributed_train [options] FILE.py [arguments]` runs a file in place of a cell.
        """
        words, script = (line, None) if cell is not None else split_line(line)
        options = parse_line(self.distributed_train, words)
        if options.output is not None:
            check_variable(options.output, "--output cannot be")
        elastic = elastic_options(options)
        cluster = self._cluster()
        if options.tensorboard:
            check_tensorboard()
        trackers = trackers_of(options)
        watcher = Watcher(tensorboard=options.tensorboard, trackers=trackers, lines=not options.detach)
        try:
            cluster.train(
                script.code if script else cell or "",
                name=options.name,
                backend=options.backend,
                config=parse(options.config or ()),
                options={"line": line.strip(), **(script.options if script else {})},
                resume=options.resume,
                show=RankPrinter(),
                watch=watcher,
                detach=options.detach,
                elastic=elastic,
            )
        finally:
            if not options.detach:
                watcher.finish()
            if options.output and watcher.run is not None:
                self._namespace()[options.output] = watcher.run

    @magic_arguments()
    @argument("names", nargs="+", help="variables of this notebook, such as x, y")
    @argument("--ranks", "-r", help="the ranks to push to, such as 0,2-3 (default: all)")
    @line_magic
    def push(self, line: str) -> None:
        """Copy variables from this notebook to the ranks."""
        options = parse_line(self.push, line)
        names = variable_names("%push", options.names)
        namespace = self._namespace()
        if missing := [name for name in names if name not in namespace]:
            raise TransferError(f"{missing[0]!r} is not defined in this notebook; assign a value before you push it")
        ranks = parse_ranks(options.ranks) if options.ranks is not None else None
        self._cluster().push({name: namespace[name] for name in names}, ranks=ranks)

    @magic_arguments()
    @argument("names", nargs="+", help="variables on the ranks, such as acc, loss")
    @argument(
        "--rank", "-r", type=int, help="the rank to pull from (default: all; then each variable is a dict by rank)"
    )
    @line_magic
    def pull(self, line: str) -> None:
        """Copy variables from the ranks into this notebook."""
        options = parse_line(self.pull, line)
        names = variable_names("%pull", options.names)
        values = self._cluster().pull(*names, ranks=None if options.rank is None else [options.rank])
        for name in names:
            by_rank = {rank: found[name] for rank, found in values.items()}
            self._namespace()[name] = by_rank if options.rank is None else by_rank[options.rank]

    @magic_arguments()
    @argument("action", nargs="?", default="list", help="list (the default), show, wait or stop")
    @argument("id", nargs="?", help="the run: its id, the beginning of its id, or its name")
    @argument("--limit", type=int, default=20, help="number of runs to list")
    @argument("--timeout", type=float, help="seconds to wait for the end of a run (default: no limit)")
    @argument("--help", "-h", action="store_true", help="explain the action, as `%%runs show?` does")
    @line_magic
    def runs(self, line: str) -> Any:
        """List the runs, show the chart and the table of a run, wait for a run, or stop a run."""
        options = parse_line(self.runs, line)
        if options.action not in background.ACTIONS:
            raise UsageError(unknown_action("%runs", options.action, tuple(background.ACTIONS)))
        if options.help:
            print(explained(f"%runs {options.action}", background.ACTIONS[options.action], self.runs.parser))
            return None
        store = self.cluster.store if self.cluster else RunStore()
        running = self.cluster.background if self.cluster else {}
        complete(store)
        if options.action == "list":
            return background.list_runs(store, running, options.limit)
        if options.id is None:
            raise UsageError(f"`%runs {options.action}` needs the id or the name of a run; `%runs` lists the runs")
        if options.action == "show":
            background.show(store, options.id)
        elif options.action == "wait":
            background.wait_for(store, running, options.id, options.timeout)
        else:
            background.stop(self._cluster(), options.id)
        return None

    def _start(self, options: argparse.Namespace) -> Cluster:
        """Start a cluster, such as `%cluster start 4`, or `%cluster start NAME` for a name other than main.

        Options: --workers, --profile, --ranks, --backend, --name, --timeout, --wait, --local, --hub
        """
        if self.cluster is not None and self.cluster.ended:
            self._release()
        if self.cluster is not None:
            raise UsageError(
                f"this notebook already leads cluster {self.cluster.name!r}; stop it first with `%cluster stop`, or "
                "use `%cluster scale N`"
            )
        if options.local and options.hub:
            raise UsageError("`--local` starts the ranks on this machine, and `--hub` on a hub; use one of them")
        # The value is a number of workers, as in `%cluster start 4`, or the cluster's name, as in
        # `%cluster start digits`.
        workers, name = (int(options.value), None) if is_number(options.value) else (options.workers, options.value)
        if options.backend is not None:
            check_backend(options.backend)
        self.cluster = Cluster.start(
            workers,
            name=options.name or name or "main",
            profile=options.profile,
            ranks=options.ranks,
            backend=options.backend,
            timeout=options.timeout,
            wait=options.wait,
            local=options.local,
            hub_url=options.hub,
        )
        return self.cluster

    def _attach(self, options: argparse.Namespace) -> Cluster:
        """Take over a running cluster and its runs with `%cluster attach [NAME]`, e.g. after a kernel restart.

        Options: --name, --timeout, --hub
        """
        name = options.name or options.value or "main"
        earlier = self.cluster
        if earlier is not None and earlier.name == name and earlier.is_connected(options.hub):
            print(f"this notebook leads cluster {name!r} already")
            background.show_active(earlier)
            return earlier
        self.cluster = Cluster.attach(name, timeout=options.timeout, hub_url=options.hub)
        if earlier is not None:
            had_dask = earlier.has_dask
            earlier.close()
            if had_dask:
                print(f"Dask has ended on cluster {earlier.name!r}; `%cluster dask` starts it on {name!r}")
        background.show_again(self.cluster)
        return self.cluster

    def _status(self, options: argparse.Namespace) -> Any:
        """Show the workers, the ranks, and the use of GPUs and of the home."""
        return self._named(options).status()

    def _check(self, options: argparse.Namespace) -> Any:
        """Test all ranks and the network between them. With a model, predict whether it fits; with a batch, its speed.

        Options: --model, --batch
        """
        return self._named(options).check(model=options.model or "", batch=options.batch or "")

    def _scale(self, options: argparse.Namespace) -> Any:
        """Start or stop workers until there are N, with `%cluster scale N`. Ranks that stay keep their variables."""
        count = options.workers if options.value is None else options.value
        if not is_number(count):
            raise UsageError("`%cluster scale` needs a number of workers, such as `%cluster scale 3`")
        self._cluster().scale(int(count))
        return self._cluster().status()

    def _stop(self, options: argparse.Namespace) -> None:
        """Stop this notebook's cluster and its runs, or another cluster with `%cluster stop NAME`.

        Options: --name, --hub
        """
        wanted = options.name or options.value
        if self.cluster is not None and wanted in {None, self.cluster.name}:
            wanted, cluster, self.cluster = self.cluster.name, self.cluster, None
            cluster.stop()
        elif wanted is not None:
            self._stop_other(wanted, options.hub)
        else:
            self._cluster()
        print(f"cluster {wanted!r} is stopped")

    def _stop_other(self, name: str, hub: str | None) -> None:
        try:
            Cluster.stop_named(name, hub_url=hub)
        except NoClusterError as exc:
            # The hub's clusters are suggested already. A cluster on this machine is not among them.
            hint = did_you_mean(name, [self.cluster.name] if self.cluster is not None else [])
            if hint in str(exc):
                raise
            raise NoClusterError(f"{exc}{hint}") from exc

    def _list(self, options: argparse.Namespace) -> None:
        """List your running clusters.

        Options: --hub
        """
        clusters = Cluster.running(hub_url=options.hub)
        for name, workers in clusters.items():
            print(f"{name}: {workers} worker{'' if workers == 1 else 's'}")
        if not clusters:
            print("no cluster runs; `%cluster start` starts one")

    def _logs(self, options: argparse.Namespace) -> None:
        """Print the last lines that a rank has printed, with `%cluster logs RANK`.

        Options: --lines
        """
        if not is_number(options.value):
            raise UsageError("`%cluster logs` needs the number of a rank, such as `%cluster logs 0`")
        print(self._cluster().logs(int(options.value), lines=options.lines))

    def _put(self, options: argparse.Namespace) -> None:
        """Copy a folder of this machine to the home on the workers, with `%cluster put DIR`. A cut copy continues.

        Options: --to
        """
        print(self._cluster().put(_folder(options), options.to))

    def _get(self, options: argparse.Namespace) -> None:
        """Copy a folder of the home on the workers to this machine, with `%cluster get DIR`. A cut copy continues.

        Options: --to
        """
        print(self._cluster().get(_folder(options), options.to))

    def _dask(self, options: argparse.Namespace) -> Any:
        """Start Dask on the ranks, and return its client: `client = %cluster dask`.

        Options: --pause-while-training
        """
        # Without the option, a running Dask keeps what an earlier call has set.
        return self._cluster().dask(pause_while_training=options.pause_while_training or None)

    def _interrupt(self, options: argparse.Namespace) -> None:
        """Stop the cell that the ranks are running."""
        self._named(options).interrupt()

    def _named(self, options: argparse.Namespace) -> Cluster:
        """Return the cluster that this notebook leads. Raises UsageError if the arguments name another one."""
        cluster, name = self._cluster(), options.name or options.value
        if name not in {None, cluster.name}:
            raise UsageError(
                f"`%cluster {options.action}` is for the cluster that this notebook leads, {cluster.name!r}, and not "
                f"for {name!r}.{did_you_mean(name, [cluster.name])}"
            )
        return cluster

    def _cluster(self) -> Cluster:
        """Return the cluster that this notebook leads. Raises NoClusterError if there is none."""
        if self.cluster is not None and self.cluster.ended:
            raise NoClusterError(self._release())
        if self.cluster is None:
            raise NoClusterError(
                "there is no cluster yet. Start one with `%cluster start --workers 2`, or attach to a running one with "
                "`%cluster attach`; without a hub, use `%cluster start --local --ranks 2`."
            )
        return self.cluster

    def _release(self) -> str:
        """Close the connection to a cluster that has ended, and return why the cluster ended."""
        assert self.cluster is not None
        ended, cluster, self.cluster = self.cluster.ended, self.cluster, None
        cluster.close()
        return ended

    def _namespace(self) -> dict[str, Any]:
        assert self.shell is not None
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace


def _folder(options: argparse.Namespace) -> str:
    if not options.value:
        raise UsageError(f"`%cluster {options.action}` needs a folder, such as `%cluster {options.action} data`")
    return str(options.value)
