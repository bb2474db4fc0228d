"""A user fills the home: the cells of a notebook on a hub, and what is expected of them. All deployments use it."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import CellError

if TYPE_CHECKING:
    from tests.clients.kernel import RemoteKernel

MIB = 2**20
LIMIT = 200 * MIB
"""The limit of the home in bytes. A new home has a few MiB: the notebooks, and files of IPython."""
SIZE = f"{LIMIT // MIB}M"
"""The limit for FARANDOLE_HOME_SIZE."""
CELL_SECONDS = 240.0
KEPT = b"kept" * 100_000
FREE = "from farandole.quotas.admission import current_use\nprint('FREE', current_use().free)"
STATUS = "status = %cluster status\nprint(status)"

START = """
import hashlib, json, os, pathlib
from farandole import load_run
from farandole.runs.store import RunStore
runs = RunStore()
home = pathlib.Path.home()
(home / "data").mkdir(exist_ok=True)
(home / "kept.bin").write_bytes(b"kept" * 100_000)
(home / "go").touch()
%load_ext farandole
%cluster start --workers 1 --backend none --name quota --profile {profile}
"""
RUN = "%%distributed_train --name {name}\nimport farandole as fd\nfd.result(1)"
LONG = """%%distributed_train --detach --name long
import os, time
import farandole as fd
step = 0
while os.path.exists(os.path.expanduser("~/go")):
    step += 1
    fd.report(step=step, loss=1 / step)
    time.sleep(0.1)
fd.result(step)
"""
FILL = """
size, error = 0, None
with (home / "data" / "{name}.bin").open("wb", buffering=0) as file:
    try:
        while size < {size}:
            size += file.write(bytes(1 << 18))
    except OSError as exc:
        error = exc.errno
print("FILLED", size, error)
"""
GO_ON = """
import time
before = len(load_run("long"))
while len(load_run("long")) < before + 5:
    time.sleep(0.1)
print("GOES ON")
"""
END = """
(home / "go").unlink()
%runs wait long
"""
NOTICES = "print('NOTICES', runs.find({name!r}).notices)"
AFTER = """
long = runs.load(runs.find("long").id)
print("LONG", long.status.value, long.result > 5)
print("KEPT", hashlib.sha256((home / "kept.bin").read_bytes()).hexdigest())
"""


class FullHome:
    """A user on a hub who fills the home, in a kernel of the user's notebook server.

    ``enforced`` says whether the file system refuses to write more. Otherwise, the home is measured.
    """

    def __init__(self, kernel: RemoteKernel, *, enforced: bool, profile: str = "cpu") -> None:
        self._kernel = kernel
        self._enforced = enforced
        self._profile = profile

    def cell(self, code: str) -> str:
        """Execute a cell and return its output."""
        return self._kernel.execute(code, deadline=CELL_SECONDS)

    def check_before(self) -> None:
        """A run in a home with much room has no warning, and the status shows the use."""
        self.cell(START.format(profile=self._profile))
        self.cell(RUN.format(name="first"))
        assert "NOTICES ()" in self.cell(NOTICES.format(name="first"))
        said = self.cell(STATUS)
        assert re.search(r"home: \d+ (Ki|Mi)B of (19\d|200) MiB used, (1\d\d|200) MiB free", said), said

    def check_warning(self) -> None:
        """Fill the home to more than 90 %: the next run begins with a warning."""
        self._fill("most", self._free - 12 * MIB)
        self.cell(RUN.format(name="near"))
        notices = self.cell(NOTICES.format(name="near"))
        assert "Your home is nearly full (" in notices, notices
        assert "What takes most: ~/data" in notices, notices

    def check_full(self) -> None:
        """Fill the home while a run goes on: the run ends as usual, and new runs are refused."""
        self.cell(LONG)
        size, error = self._fill("rest", 40 * MIB)
        assert (error is not None, size < 20 * MIB) == (self._enforced, self._enforced)
        if not self._enforced:
            # On a full disk, what a run reports stays in memory.
            assert "GOES ON" in self.cell(GO_ON)
        self.cell(END)
        with pytest.raises(CellError, match=r"UsageError: the run was not started, because your home is full.*~/data"):
            self.cell(RUN.format(name="over"))
        assert "Your home is full" in self.cell(STATUS)

    def check_after(self) -> None:
        """Nothing is lost, and after the user has deleted files, runs begin again."""
        self.cell('(home / "data" / "most.bin").unlink()\n(home / "data" / "rest.bin").unlink()')
        self.cell(RUN.format(name="after"))
        said = self.cell(AFTER)
        assert "LONG finished True" in said, said
        assert hashlib.sha256(KEPT).hexdigest() in said, said
        self.cell("%cluster stop")

    @property
    def _free(self) -> int:
        found = re.search(r"FREE (\d+)", self.cell(FREE))
        assert found
        return int(found[1])

    def _fill(self, name: str, size: int) -> tuple[int, int | None]:
        """Write a file of this size, and return how much was written, and the number of the error if it was less."""
        found = re.search(r"FILLED (\d+) (\w+)", self.cell(FILL.format(name=name, size=size)))
        assert found
        return int(found[1]), None if found[2] == "None" else int(found[2])
