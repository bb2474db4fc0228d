"""The run store keeps each run in a folder of plain files. ``<runs>/<id>/`` contains

- ``run.json`` and ``code.py``;
- ``notes.json`` with the name, tags and notes that the user has given to the run (see `farandole.runs.notes`);
- ``metrics/rank-<n>.jsonl`` with one report per line, ``usage/rank-<n>.jsonl`` and ``logs/rank-<n>.log``;
- ``times/rank-<n>.jsonl``, which records when the output in the logs was printed (see `farandole.runs.logs`);
- ``positions.json``, which records which messages these files contain (see `farandole.runs.positions`);
- ``driver.alive``, which the driver touches during the run (see `farandole.runs.lifecycle.heartbeat`);
- ``view.json`` and ``lines.json`` with condensed data for the dashboard and the panel;
- ``checkpoints/step-<n>/`` for each checkpoint that the ranks have written;
- ``tensorboard/rank-<n>/`` with TensorBoard event files, if the user requested them;
- ``records/`` with the journals that workers have saved (see `farandole.driver.recovery.orphaned_runs`).
"""

from __future__ import annotations

import math
import os
import secrets
import subprocess
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.exceptions import RunNotFoundError, RunUnreadableError, UsageError
from farandole.protocol import Status
from farandole.reading import read_json
from farandole.runs.checkpoints.found import checkpoints_of
from farandole.runs.folder import code_of, feed, read_info, run_names, this_process
from farandole.runs.lifecycle.lock import changing
from farandole.runs.lifecycle.tombstones import is_deleted, unmark
from farandole.runs.model import RunInfo
from farandole.runs.notes import annotated
from farandole.runs.origin import Origin
from farandole.runs.positions import cut_back
from farandole.runs.run import Run
from farandole.runs.series import text_of_any_kind
from farandole.runs.view import extremes
from farandole.runs.view_files import VIEW, ViewFiles
from farandole.runs.writer import RUN_FILE, Nowhere, RunFiles, write_atomically
from farandole.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    import pandas as pd

    from farandole.hyperparameters import Hyperparameter

GIT_SECONDS = 3.0
BASICS = ("id", "name", "status", "started", "seconds", "size", "backend", "cluster", "ended", "tags", "notes")
"""The first columns of the data frame of all runs."""


def default_folder() -> Path:
    """Return the folder that ``$FARANDOLE_RUNS`` names. The default is ``farandole/runs`` in the home folder."""
    return Path(os.environ.get("FARANDOLE_RUNS") or Path.home() / "farandole" / "runs")


class RunStore:
    """Creates, finds and reads the runs in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = Path(folder or default_folder()).expanduser().absolute()

    def create(
        self,
        *,
        code: str,
        backend: str,
        size: int,
        workers: Sequence[str],
        name: str | None = None,
        cluster: str = "",
        config: Mapping[str, Hyperparameter] | None = None,
        options: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        data_sets: Mapping[str, str] | None = None,
        resumed_from: str | None = None,
        cwd: str | Path | None = None,
        origin: Origin | None = None,
    ) -> Run:
        """Begin a run. If its folder cannot be written, the run stays in memory and gets a notice about the error.

        ``config`` contains the hyper-parameters that take precedence over those of the cell.
        """
        run_id = self._new_id()
        cwd = Path(cwd or Path.cwd())
        info = RunInfo(
            id=run_id,
            folder=self.folder / run_id,
            name=name or "",
            started=time.time(),
            backend=backend,
            cluster=cluster,
            size=size,
            workers=tuple(workers),
            config=dict(config or {}),
            overrides=dict(config or {}),
            options=dict(options or {}),
            versions=dict(versions or {}),
            data_sets=dict(data_sets or {}),
            resumed_from=resumed_from,
            git=git_state(cwd),
            cwd=str(cwd),
            driver=this_process(),
            **vars(origin or Origin()),
        )
        return self._write(Run(info, code, Nowhere()))

    def resume(
        self, about: Mapping[str, Any], code: str, *, missing: Container[int] = (), continues: bool = False
    ) -> Run:
        """Take over a run that another driver began. Return the run with the content of its files.

        The caller then adds the messages from the workers' journals. ``about`` is the initial content of ``run.json``,
        which is used if this store does not have the run. The ranks in ``missing`` have no journals, so their files
        are not changed. If the run ``continues`` on its ranks, it is restored even if the user has deleted it.

        Raises RunNotFoundError if the user has deleted the run.
        """
        folder = self.folder / Path(about["id"]).name
        with _undisturbed(self.folder):
            if continues:
                unmark(folder)
            elif is_deleted(folder):
                raise RunNotFoundError(f"run {folder.name} has been deleted, so it is not taken over")
            info = _info_to_resume(folder, about)
            info = replace(info, status=Status.RUNNING, error=None, ended=None, driver=this_process())
            _claim(info)
        written = cut_back(folder, keep=missing)
        run = Run(info, code, Nowhere(), written=written)
        feed(run)
        return self._write(run, written)

    def follow(self, about: Mapping[str, Any], code: str, *, missing: Container[int] = ()) -> Run:
        """Return an in-memory copy of a run that another driver leads and writes to disk.

        The caller adds all messages from the workers' journals. The ranks in ``missing`` have no journals, so their
        data is read from files.
        """
        info = RunInfo.from_json({**about, "driver": this_process()}, self.folder / Path(about["id"]).name)
        run = Run(info, code, Nowhere())
        feed(run, missing)
        return run

    def has_deleted(self, run: str) -> bool:
        """Return whether the user has deleted the run with this id."""
        return is_deleted(self.folder / run)

    def _write(self, run: Run, written: Mapping[str, int] | None = None) -> Run:
        files = RunFiles(run.folder, written=written)
        run.write_to(files)
        files.replace("code.py", run.code)
        files.replace("run.json", run.info.to_json)
        files.start(tell=run.notice, renew=ViewFiles(run, files).renew)
        return run

    def _new_id(self) -> str:
        while True:
            run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
            if not (self.folder / run_id).exists():
                return run_id

    def list(self) -> list[RunInfo]:
        """Return the infos of all runs, newest first. Skip a folder that cannot be read, with a warning."""
        runs, unreadable = self._read()
        for name, error in unreadable.items():
            warnings.warn(f"{error}. It is left out; its folder is {str(self.folder / name)!r}", stacklevel=2)
        return list(runs)

    def _read(self) -> tuple[Sequence[RunInfo], dict[str, RunUnreadableError]]:
        """Return all runs, newest first, and the error for each folder that cannot be read, by folder name."""
        runs: list[RunInfo] = []
        unreadable: dict[str, RunUnreadableError] = {}
        for name in self._names():
            try:
                runs.append(annotated(read_info(self.folder / name)))
            except RunUnreadableError as error:
                unreadable[name] = error
        return sorted(runs, key=lambda info: (info.started, info.id), reverse=True), unreadable

    def _names(self) -> Sequence[str]:
        try:
            return run_names(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            warnings.warn(f"The run store {self.folder} cannot be read: {error}", stacklevel=4)
            return ()

    def find(self, key: str) -> RunInfo:
        """Return the info of a run. ``key`` is the run's id, its name, or the beginning of its id.

        If several runs have this name, the newest is returned. The original name of a renamed run also finds it.

        Raises:
            RunNotFoundError: there is no such run, or several ids begin with ``key``.
            RunUnreadableError: the run cannot be read.
        """
        runs, unreadable = self._read()
        exact = [info for info in runs if info.id == key] or [info for info in runs if key and info.name == key]
        if exact := exact or [info for info in runs if key and info.original_name == key]:
            return exact[0]
        begun = [info for info in runs if key and info.id.startswith(key)]
        broken = [error for name, error in unreadable.items() if key and name.startswith(key)]
        if len(begun) + len(broken) == 1:
            if broken:
                raise broken[0]
            return begun[0]
        raise RunNotFoundError(_not_found(key, begun, runs, self.folder))

    def to_resume(self, key: str, *, name: str | None = None, cwd: Path | None = None) -> RunInfo:
        """Return the info of the run from whose checkpoint a new run continues.

        - ``key`` is an id, the beginning of an id, or a name. If several runs have that name, the newest one with a
          checkpoint is returned.
        - If ``key`` is empty, the newest run that has a checkpoint and this ``name`` is returned. Without a ``name``,
          the newest run that has a checkpoint and was started in the directory ``cwd`` is returned.

        Raises:
            UsageError: no such run has a checkpoint.
            RunNotFoundError: there is no such run.
        """
        if key:
            return self._with_checkpoint(key)
        here = str(cwd or Path.cwd())
        for info in self.list():
            if (_has_name(info, name) if name else info.cwd == here) and checkpoints_of(info.folder):
                return info
        whose = f"with the name {name!r}" if name else f"from {here}"
        raise UsageError(
            f"no run {whose} has a checkpoint; call fd.checkpoint(state) in the cell, or name a run with --resume ID "
            "(%runs lists the ids)."
        )

    def _with_checkpoint(self, key: str) -> RunInfo:
        info = self.find(key)
        same_name = [other for other in self.list() if _has_name(other, key)]
        for candidate in [info, *same_name]:
            if checkpoints_of(candidate.folder):
                return candidate
        raise UsageError(
            f"run {info.id} has no checkpoint to continue from; call fd.checkpoint(state) in its cell, or name another "
            "run."
        )

    def load(self, key: str) -> Run:
        """Read a run with all its data from disk. `find` describes ``key``."""
        info = self.find(key)
        run = Run(info, code_of(info))
        feed(run)
        return run

    def load_run(self, key: str) -> pd.DataFrame:
        """Return the reports of a run as a data frame. `find` describes ``key``."""
        return self.load(key).dataframe()

    def load_runs(self) -> pd.DataFrame:
        """Return a data frame with a row for each run, newest first. `load_runs` describes the columns."""
        return frame_of(self.list())


def frame_of(runs: Sequence[RunInfo]) -> pd.DataFrame:
    """Return a data frame with a row for each of these runs. `load_runs` describes the columns."""
    with text_of_any_kind():
        import pandas as pd

        basics = pd.DataFrame([_basics(info) for info in runs], columns=BASICS)
        parts: dict[str, list[Any]] = {"config": [info.config for info in runs], **_columns_of_series(runs)}
        more = [pd.DataFrame(rows, index=basics.index).add_prefix(f"{part}.") for part, rows in parts.items()]
        return pd.concat([basics, *more], axis=1)


def load_runs(folder: Path | None = None) -> pd.DataFrame:
    """Return all runs as a pandas data frame with a row for each run, newest first.

    The columns are

    - id, name, status, size, backend and cluster;
    - started (seconds since the epoch), and seconds, the duration of the run, which is unknown for a lost run;
    - ended (seconds since the epoch), which is unknown for a run that is in progress or lost;
    - tags (a list) and notes, which the user has given to the run on the page of runs;
    - ``config.NAME`` for each hyper-parameter;
    - ``series.NAME`` for each series, with the mean over the ranks of the last value of each rank;
    - ``lowest.NAME`` and ``highest.NAME`` for each series, with the extremes of all values of all ranks.

    Runs that cannot be read are left out with a warning.
    """
    return RunStore(folder).load_runs()


def _basics(info: RunInfo) -> tuple[Any, ...]:
    seconds = math.nan if info.status is Status.LOST and info.ended is None else info.seconds
    named = (info.id, info.name, info.status.value, info.started, seconds, info.size, info.backend, info.cluster)
    return *named, _number(info.ended), list(info.tags), info.notes


def _columns_of_series(runs: Sequence[RunInfo]) -> dict[str, list[dict[str, float]]]:
    """Return the values of the series of each run, by the prefix of the columns."""
    found = [_values(info) for info in runs]
    return {
        part: [{name: values[place] for name, values in one.items()} for one in found]
        for place, part in enumerate(("series", "lowest", "highest"))
    }


def _values(info: RunInfo) -> dict[str, tuple[float, ...]]:
    """Return the last, lowest and highest value of each series.

    They are in ``view.json``. If this file cannot be read, all reports are read.
    """
    try:
        series = read_json(info.folder, VIEW)["series"]
        return {one["name"]: tuple(map(_number, (one["last"], *extremes(one)))) for one in series}
    except (OSError, ValueError, LookupError, TypeError, OverflowError, AttributeError):
        run = Run(info, "")
        feed(run)
        return {one.name: (one.last, one.low, one.high) for one in run.series(by_rank=False)}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def load_run(key: str, folder: Path | None = None) -> pd.DataFrame:
    """Return the reports of a run as a pandas data frame.

    ``key`` is the id of the run, the beginning of the id, or the name of the run. The columns are rank, time (seconds
    since the epoch), step, epoch, and one for each series.
    """
    return RunStore(folder).load_run(key)


def _info_to_resume(folder: Path, about: Mapping[str, Any]) -> RunInfo:
    """Return the info of a run to take over, from ``about`` if ``run.json`` is missing or unreadable.

    An unreadable ``run.json`` is renamed.
    """
    path = folder / "run.json"
    if os.path.lexists(path):
        try:
            return read_info(folder)
        except RunUnreadableError:
            path.rename(path.with_name("run.json.old"))
    return RunInfo.from_json(dict(about), folder)


@contextmanager
def _undisturbed(store: Path) -> Iterator[None]:
    """Let no other process delete a run in this context. If the volume cannot be used, continue all the same."""
    with ExitStack() as stack:
        with suppress(OSError):
            store.mkdir(parents=True, exist_ok=True)
            stack.enter_context(changing(store))
        yield


def _claim(info: RunInfo) -> None:
    """Name this process as the driver in ``run.json``, so that the run cannot be deleted any more.

    An error is ignored, because the caller writes the file again and reports the error to the user.
    """
    with suppress(OSError):
        write_atomically(info.folder / RUN_FILE, info.to_json().encode(), durable=True)


def git_state(cwd: Path) -> dict[str, Any] | None:
    """Return ``commit`` and ``dirty`` for the git repository of a folder, or None if git finds no repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    commit, dirty, _ = done.stdout.strip().partition("-dirty")
    return {"commit": commit, "dirty": bool(dirty)}


def _has_name(info: RunInfo, name: str) -> bool:
    return name in (info.name, info.original_name)


def _not_found(key: str, begun: Sequence[RunInfo], runs: Sequence[RunInfo], folder: Path) -> str:
    if begun:
        return f"{len(begun)} runs begin with {key!r}: {', '.join(info.id for info in begun[:5])}; give more of the id"
    if not runs:
        return f"No run {key!r}: there are no runs in {folder} (set FARANDOLE_RUNS to read another folder)"
    newest = ", ".join(info.id for info in runs[:3])
    known = {info.id for info in runs} | {info.name for info in runs if info.name}
    return f"No run {key!r} in {folder}; the newest are {newest} (%runs lists all).{did_you_mean(key, known)}"
