"""Checks the arguments of `Cluster.map_batches`, and plans the parts of its job."""

from __future__ import annotations

import os
import platform
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farandole.batches.parts import JobSpec
from farandole.driver.batches.inputs import Input, find_input, pickled
from farandole.driver.batches.manifest import OutputFolder
from farandole.driver.batches.stages import checked_stages, identities, packed
from farandole.exceptions import UsageError
from farandole.runs.notes import LONGEST_NAME, NOT_IN_NAMES
from farandole.runs.origin import Origin, origin

ON_ERROR = ("raise", "skip")


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """The arguments of `Cluster.map_batches`. ``origin`` is the notebook cell that called the method."""

    stages: Any
    source: Any
    to: str | Path
    batch_size: int
    part_rows: int | None
    on_error: str
    name: str | None
    origin: Origin = field(default_factory=origin)

    def __post_init__(self) -> None:
        part_rows = 1 if self.part_rows is None else self.part_rows
        for name, number in (("batch_size", self.batch_size), ("part_rows", part_rows)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, not {number!r}")
        if self.on_error not in ON_ERROR:
            raise UsageError(f"on_error must be 'raise' or 'skip', not {self.on_error!r}")
        if not isinstance(self.to, str | os.PathLike):
            raise UsageError(f"to must be the path of the output folder, not {self.to!r}")
        if "://" in str(self.to):
            raise UsageError(f"map_batches writes to folders, not to the address {self.to}; copy the folder afterwards")

    @property
    def skip(self) -> bool:
        """Whether records for which a stage fails are left out."""
        return self.on_error == "skip"

    @property
    def folder(self) -> Path:
        """The absolute path of the output folder."""
        return Path(self.to).expanduser().absolute()

    @property
    def run_name(self) -> str:
        """The name of the run: the user's, or that of the output folder without what names of runs must not contain."""
        plain = (one for one in self.folder.name if unicodedata.category(one) not in NOT_IN_NAMES)
        return self.name or "".join(plain).strip()[:LONGEST_NAME]


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """A checked request: its stages, its source, and how that is divided into parts."""

    request: BatchRequest
    stages: list[Any]
    input: Input
    part_rows: int

    @classmethod
    def of(cls, request: BatchRequest) -> BatchPlan:
        """Check a request. Raises UsageError or ModelError if it is not possible."""
        stages, found = checked_stages(request.stages), find_input(request.source)
        if isinstance(request.source, str | os.PathLike) and _is_within(request.folder, found.identity["path"]):
            raise UsageError(
                f"the output folder {request.folder} is in the source, which it would change; choose one elsewhere"
            )
        part_rows = found.part_rows(request.batch_size, request.part_rows)
        return cls(request=request, stages=stages, input=found, part_rows=part_rows)

    def open(self) -> OutputFolder:
        """Open the output folder. Raises UsageError if it has the output of another job."""
        job = {
            "stages": identities(self.stages),
            "source": self.input.identity,
            "batch_size": self.request.batch_size,
            "part_rows": self.part_rows,
        }
        parts = self.input.parts(self.part_rows)
        return OutputFolder(self.request.folder, job, parts, skip=self.request.skip)

    def spec(self) -> JobSpec:
        """Return what each rank gets."""
        source = self.input.source
        return JobSpec(
            stages=packed(self.stages),
            source=None if source is None else pickled(source, "the source"),
            python=platform.python_version(),
            batch_size=self.request.batch_size,
            skip=self.request.skip,
        )


def _is_within(folder: Path, source: str) -> bool:
    return folder.resolve().is_relative_to(Path(source).resolve())
