"""The training code of a soak test, and the ranks' own journals, which no injected fault can damage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SAMPLES = 248
COMMIT_EVERY = 2
CHECKPOINT_EVERY = 20
END = "end"
"""The training ends when a file with this name exists in the folder."""

CELL = """
import json, os, time, torch, farandole as fd
from pathlib import Path
from farandole.ranks import context
from farandole.ranks.world.collectives import gather_bytes
folder = Path({folder!r})
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.Linear(1024, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.arange({samples}), torch.randn({samples}, 64))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = fd.prepare(model, optimizer, loader)
state = fd.state(model, optimizer, loader, epoch=0, step=0, seen=b"")
checkpoints = fd.checkpoint(state, every={checkpoint_every} // {commit_every}, keep=2)
# In a container that takes another's place the processes have the same numbers.
journal = (folder / f"journal-{{context.worker()}}-{{os.getpid()}}-{{time.time_ns()}}").open("a", buffering=1)
who = {{"pid": os.getpid(), "parent": os.getppid(), "worker": context.worker()}}

def note(**what):
    journal.write(json.dumps(who | what) + "\\n")

@fd.elastic
def train(state):
    while True:
        for ids, x in loader:
            loss = (model(x) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (mark := folder / f"memory-{{fd.rank()}}").exists():
                mark.unlink()
                hoard = [bytes([1]) * 2**28 for _ in range(2**10)]
            gathered = gather_bytes(bytes([(folder / {end!r}).exists(), *ids.tolist()]))
            state.step += 1
            state.seen += b"".join(part[1:] for part in gathered)
            if state.step % {commit_every} == 0:
                state.commit()
            at = time.time()
            fd.report(step=state.step, size=fd.size(), at=at)
            print(f"step {{state.step}} at {{at!r}}\\n", end="")
            note(rank=fd.rank(), size=fd.size(), step=state.step, at=at)
            if any(part[0] for part in gathered):
                return
            time.sleep(0.05)
        state.epoch += 1

train(state)
fd.result({{"step": state.step, "seen": list(state.seen)}})
note(ended=True, step=state.step)
"""


def cell(folder: str) -> str:
    """Return the code of the training cell. The ranks write their journals to ``folder``."""
    return CELL.format(
        folder=folder,
        samples=SAMPLES,
        commit_every=COMMIT_EVERY,
        checkpoint_every=CHECKPOINT_EVERY,
        end=END,
    )


def memory_mark(folder: str, rank: int) -> str:
    """Return the path of a file that, once it exists, makes a rank allocate more memory than allowed."""
    return f"{folder}/memory-{rank}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a rank. The rank writes it to its journal after reporting the step."""

    rank: int
    size: int
    step: int
    at: float
    pid: int
    parent: int
    worker: str


@dataclass(kw_only=True)
class Life:
    """The steps of one process in order. ``ended`` is true if the process has completed the training."""

    steps: list[Step] = field(default_factory=list)
    ended: bool = False


class Journals:
    """Reads the journals in a folder. Each read continues where the previous read stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives: dict[str, Life] = {}
        self._read: dict[str, int] = {}

    def read(self) -> list[Life]:
        """Return the steps that each process has recorded so far, without incomplete last lines."""
        for path in sorted(self._folder.glob("journal-*")):
            self._read_on(path)
        return [life for life in self._lives.values() if life.steps]

    def _read_on(self, path: Path) -> None:
        life = self._lives.setdefault(path.name, Life())
        begin = self._read.get(path.name, 0)
        with path.open("rb") as file:
            file.seek(begin)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):
                self._read[path.name] = begin = begin + len(line)
                _take(life, json.loads(line))


def _take(life: Life, line: dict[str, Any]) -> None:
    if "rank" in line:
        life.steps.append(Step(**line))
    else:
        life.ended = True


def in_order(lives: Iterable[Life]) -> list[Step]:
    """Return the steps of all processes, sorted by time."""
    return sorted((step for life in lives for step in life.steps), key=lambda step: step.at)


def longest_gap(steps: Iterable[Step]) -> float:
    """Return the longest time in seconds during which no rank completed a step."""
    times = [step.at for step in steps]
    return max((after - before for before, after in pairwise(times)), default=0.0)


def steps_lost(steps: Iterable[Step]) -> int:
    """Return the largest number of steps that rank 0 had to repeat at one time, whichever process was rank 0."""
    done = [step.step for step in steps if step.rank == 0]
    return max([0, *(before - after + 1 for before, after in pairwise(done))])
