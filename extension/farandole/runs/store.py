"""The run store: one folder for each run, readable with any tool. ``<runs>/<id>/`` contains

- ``run.json`` and ``code.py``;
- ``metrics/rank-<n>.jsonl`` with a report in each line, ``usage/rank-<n>.jsonl`` and ``logs/rank-<n>.log``;
- ``positions.json``: which messages of the ranks these files hold, see `farandole.runs.positions`;
- ``view.json`` and ``lines.json``: the condensed form for dashboard and panel;
- ``checkpoints/step-<n>/``, if the ranks have written any;
- ``records/``: journals that workers have persisted, see `farandole.driver.recovery.orphaned_runs`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from farandole.exceptions import RunNotFoundError, UsageError
from farandole.protocol import Status
from farandole.runs.checkpoints import checkpoints_of
from farandole.runs.model import RunInfo
from farandole.runs.origin import Origin
from farandole.runs.positions import cut_back, rank_files
from farandole.runs.run import Run
from farandole.runs.view_files import ViewFiles
from farandole.runs.writer import Nowhere, RunFiles

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    import pandas as pd

GIT_SECONDS = 3.0
LOG_TAIL_BYTES = 8_000


def default_folder() -> Path:
    """Return ``$FARANDOLE_RUNS``, or ``farandole/runs`` in the home folder."""
    return Path(os.environ.get("FARANDOLE_RUNS") or Path.home() / "farandole" / "runs")


class RunStore:
    """The runs in one folder."""

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
        options: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        resumed_from: str | None = None,
        cwd: str | Path | None = None,
        origin: Origin | None = None,
    ) -> Run:
        """Begin a run; if its folder cannot be written, the run stays in memory and has a notice about it."""
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
            options=dict(options or {}),
            versions=dict(versions or {}),
            resumed_from=resumed_from,
            git=git_state(cwd),
            cwd=str(cwd),
            driver=this_process(),
            **vars(origin or Origin()),
        )
        return self._write(Run(info, code, Nowhere()))

    def resume(self, about: Mapping[str, Any], code: str, *, missing: Container[int] = ()) -> Run:
        """Return a run that another driver began, with the content of its files, to be continued from the journals.

        ``about`` is the first content of its ``run.json``, for a store without its folder. The ``missing`` ranks have
        no journals, so their files stay as they are.
        """
        folder = self.folder / Path(about["id"]).name
        known = (folder / "run.json").exists()
        info = read_info(folder) if known else RunInfo.from_json(dict(about), folder)
        info = replace(info, status=Status.RUNNING, error=None, ended=None, driver=this_process())
        written = cut_back(folder, keep=missing)
        run = Run(info, code, Nowhere(), written=written)
        feed(run)
        return self._write(run, written)

    def follow(self, about: Mapping[str, Any], code: str, *, missing: Container[int] = ()) -> Run:
        """Return a run that another driver leads and writes, to be fed from the beginning of the journals."""
        info = RunInfo.from_json({**about, "driver": this_process()}, self.folder / Path(about["id"]).name)
        run = Run(info, code, Nowhere())
        feed(run, missing)
        return run

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
        """Return all runs, newest first; a folder that cannot be read is skipped with a warning."""
        return sorted(self._readable(), key=lambda info: (info.started, info.id), reverse=True)

    def _readable(self) -> Iterator[RunInfo]:
        for folder in self._folders():
            try:
                yield read_info(folder)
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                warnings.warn(f"Run folder {folder} cannot be read and is left out: {error}", stacklevel=3)

    def _folders(self) -> Iterator[Path]:
        try:
            entries = sorted(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            warnings.warn(f"The run store {self.folder} cannot be read: {error}", stacklevel=4)
            return
        yield from (entry for entry in entries if entry.is_dir() and not entry.name.startswith("."))

    def find(self, key: str) -> RunInfo:
        """Return the run with this id, beginning of an id or name; of several with that name the newest.

        Raises:
            RunNotFoundError: there is none, or several ids begin with ``key``.
        """
        runs = self.list()
        exact = [info for info in runs if info.id == key] or [info for info in runs if info.name == key and key]
        if exact:
            return exact[0]
        begun = [info for info in runs if key and info.id.startswith(key)]
        if len(begun) == 1:
            return begun[0]
        raise RunNotFoundError(_not_found(key, begun, runs, self.folder))

    def to_resume(self, key: str, *, name: str | None = None, cwd: Path | None = None) -> RunInfo:
        """Return the run whose checkpoint a new run continues from.

        - ``key`` is an id, the beginning of one, or a name; of several runs with that name, the newest with a
          checkpoint counts.
        - With an empty key it is the newest run that has a checkpoint: of the same ``name`` if there is one, else of
          the same working directory.

        Raises:
            UsageError: the run has no checkpoint. RunNotFoundError: there is no such run.
        """
        if key:
            return self._with_checkpoint(key)
        here = str(cwd or Path.cwd())
        for info in self.list():
            if (info.name == name if name else info.cwd == here) and checkpoints_of(info.folder):
                return info
        whose = f"with the name {name!r}" if name else f"from {here}"
        raise UsageError(
            f"no run {whose} has a checkpoint; call fd.checkpoint(state) in the cell, or name a run: --resume ID "
            "(%runs)."
        )

    def _with_checkpoint(self, key: str) -> RunInfo:
        info = self.find(key)
        same_name = [other for other in self.list() if other.name == key]
        for candidate in [info, *same_name]:
            if checkpoints_of(candidate.folder):
                return candidate
        raise UsageError(
            f"run {info.id} has no checkpoint to continue from; call fd.checkpoint(state) in its cell, or name another "
            "run."
        )

    def load(self, key: str) -> Run:
        """Read a run from disk; ``key`` as in `find`."""
        info = self.find(key)
        run = Run(info, _text(info.folder / "code.py"))
        feed(run)
        return run

    def load_run(self, key: str) -> pd.DataFrame:
        """Return the reports of a run as a data frame; ``key`` as in `find`."""
        return self.load(key).dataframe()


def feed(run: Run, ranks: Container[int] | None = None) -> None:
    """Add the content of a run's files to it, for some ranks or for all."""

    def wanted(folder: str, suffix: str) -> Iterator[tuple[int, Path]]:
        files = rank_files(run.folder / folder, suffix)
        return ((rank, path) for rank, path in files if ranks is None or rank in ranks)

    for kind in ("metrics", "usage"):
        for rank, path in wanted(kind, ".jsonl"):
            for record in read_lines(path):
                run.add_records(rank, record)
    for rank, path in wanted("logs", ".log"):
        run.add_log(rank, tail(path))


def load_run(key: str, folder: Path | None = None) -> pd.DataFrame:
    """Return the reports of a run (its id, the beginning of one, or a name) as a pandas data frame.

    Columns are rank, time (seconds since the epoch), step, epoch and one for each series.
    """
    return RunStore(folder).load_run(key)


def read_info(folder: Path) -> RunInfo:
    """Read ``run.json``; a run whose driver has ended is lost. Raises OSError, KeyError, TypeError or ValueError."""
    return as_it_stands(RunInfo.from_json(json.loads((folder / "run.json").read_text(encoding="utf-8")), folder))


def as_it_stands(info: RunInfo) -> RunInfo:
    """Return the info with the status lost if the driver has ended before it could write the end."""
    if info.status is Status.RUNNING and driver_is_gone(info.driver):
        return replace(info, status=Status.LOST, error=info.error or "the driver ended before the run did")
    return info


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a JSON-lines file; incomplete lines are skipped."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def this_process() -> dict[str, Any]:
    """Return what identifies this process: host, process id and start time."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}


def driver_is_gone(driver: Mapping[str, Any]) -> bool:
    """Return whether the process of a driver has ended; False if it ran on another host, where it cannot be checked."""
    if driver.get("host") != socket.gethostname():
        return False
    try:
        started = psutil.Process(int(driver["pid"])).create_time()
    except psutil.NoSuchProcess:
        return True
    return abs(started - float(driver["started"])) > 1


def git_state(cwd: Path) -> dict[str, Any] | None:
    """Return ``commit`` and ``dirty`` of the git repository of a folder, or None without a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    commit, dirty, _ = done.stdout.strip().partition("-dirty")
    return {"commit": commit, "dirty": bool(dirty)}


def _not_found(key: str, begun: Sequence[RunInfo], runs: Sequence[RunInfo], folder: Path) -> str:
    if begun:
        return f"{len(begun)} runs begin with {key!r}: {', '.join(info.id for info in begun[:5])}; give more of the id"
    if not runs:
        return f"No run {key!r}: there are no runs in {folder} (set FARANDOLE_RUNS to read another folder)"
    newest = ", ".join(info.id for info in runs[:3])
    return f"No run {key!r} in {folder}; the newest are {newest} (%runs lists all)"


def tail(path: Path) -> str:
    """Return the last `LOG_TAIL_BYTES` of a log."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
