"""What follows a training loop that takes turns with another launcher's: `rates` holds samples per second of each turn.

The loop left `train`, `pace`, `rank`, `size` and `BATCH`; the bench put `FOLDER`, `SIDE`, `OTHER`, `FIRST`, `TURNS` and
`SECONDS` before it.
"""

import pathlib

WAIT_SECONDS = 120
turns = pathlib.Path(FOLDER)
steps = max(1, int(SECONDS / pace))
rates = []
(turns / f"{SIDE}--1").touch()
for turn in range(TURNS):
    # The second side follows the first one's turn; the first waits for the second's last turn, the first time for its
    # set-up.
    awaited = turns / (f"{OTHER}-{turn - 1}" if FIRST else f"{OTHER}-{turn}")
    patience = time.monotonic() + WAIT_SECONDS
    while not awaited.exists():
        if time.monotonic() > patience:
            raise TimeoutError(f"{awaited} did not come")
        time.sleep(0.005)
    rates.append(BATCH * size / train(steps))
    if rank == 0:
        (turns / f"{SIDE}-{turn}").touch()
