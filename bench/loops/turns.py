"""Alternate a training loop with the same loop under another launcher; `rates` holds samples per second of each turn.

The loop before this code defines `train`, `pace`, `rank`, `size` and `BATCH`; the bench prepends `FOLDER`, `SIDE`,
`OTHER`, `FIRST`, `TURNS` and `SECONDS`.
"""

import pathlib

WAIT_SECONDS = 120
turns = pathlib.Path(FOLDER)
steps = max(1, int(SECONDS / pace))
rates = []
(turns / f"{SIDE}--1").touch()
for turn in range(TURNS):
    # The second side waits for the same turn of the first side. The first side waits for the previous turn of the
    # second side; before its first turn, that is the end of the setup.
    awaited = turns / (f"{OTHER}-{turn - 1}" if FIRST else f"{OTHER}-{turn}")
    deadline = time.monotonic() + WAIT_SECONDS
    while not awaited.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{awaited} was not created within {WAIT_SECONDS} s")
        time.sleep(0.005)
    rates.append(BATCH * size / train(steps))
    if rank == 0:
        (turns / f"{SIDE}-{turn}").touch()
