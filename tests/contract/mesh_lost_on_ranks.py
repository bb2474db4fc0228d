"""Script for one rank in the contract test of checkpoints of a sharded model. A rank ends while both write."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import farandole as fd
import torch
from farandole.ranks import run
from farandole.ranks.checkpoints import files
from torch import nn

from tests.contract.train_on_ranks import end_process, form_world


def end(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    form_world()
    model, _, _ = fd.prepare(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), mesh={"shard": 2})
    state = fd.state(model, step=1)
    checkpoints = fd.checkpoint(state, every=1, folder=folder)
    shown: list[object] = []
    threading.excepthook = shown.append
    run.notice = lambda text, **_: shown.append(text)
    if fd.rank() == 1:
        files.store = end
    state.commit()
    checkpoints.wait()
    assert fd.rank() == 0
    assert shown == []
    assert list(folder.iterdir()) == []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    end_process()
