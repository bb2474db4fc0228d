"""Train a model in alternation with a second process group that runs the same code under another launcher.

- The code of the backend precedes this code and defines `distribute`, `from_rank_0`, `rank` and `size`.
- The code of the model also precedes it and defines `model`, `loss_of`, `BATCH` and `WARM_UP`.
- The bench prepends `FOLDER`, `SIDE`, `OTHER`, `FIRST`, `TURNS` and `SECONDS`.
- `rates` is the result: the samples per second of each turn.
"""

import pathlib
import time

WAIT_SECONDS = 120

model, optimizer = distribute(model)


def train(steps):
    """Train for ``steps`` steps and return the seconds per step."""
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    return (time.perf_counter() - began) / steps


train(WARM_UP)
# All ranks must train for the same number of steps, so use the number from rank 0.
steps = max(1, int(SECONDS / from_rank_0(train(WARM_UP))))
turns = pathlib.Path(FOLDER)
rates = []
(turns / f"{SIDE}--1").touch()
for turn in range(TURNS):
    # The second side waits for the same turn of the first side. The first side waits for the previous turn of the
    # second side; turn -1 is the end of the second side's setup.
    awaited = turns / (f"{OTHER}-{turn - 1}" if FIRST else f"{OTHER}-{turn}")
    deadline = time.monotonic() + WAIT_SECONDS
    while not awaited.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{awaited} was not created within {WAIT_SECONDS} s")
        time.sleep(0.005)
    rates.append(BATCH * size / train(steps))
    if rank == 0:
        (turns / f"{SIDE}-{turn}").touch()
