"""``fd.config``: record the hyper-parameters of a run."""

from __future__ import annotations

import time
from typing import Any

from farandole.hyperparameters import checked
from farandole.protocol import Kind
from farandole.ranks import context, run
from farandole.ranks.metrics import reporter


def config(**values: Any) -> dict[str, Any]:
    """Record hyper-parameters of the run, and return the values to train with.

    ``hp = fd.config(lr=0.1, batch=64)`` returns a dict with the names ``lr`` and ``batch``. A value that the line of
    the magic gives, as in ``--config lr=0.01``, replaces the value in the cell. Calls add up, and a later value of a
    name replaces an earlier one. The run records the values of rank 0. Outside a run, the values are only checked.

    Args:
        **values: numbers, strings, True, False or None by name. Write names with dots as ``**{"optimizer.lr": 0.1}``.

    Returns:
        dict: the values by name.

    Raises:
        UsageError: a value has another type, is not finite or has more than 1,000 characters, or the run has more than
            200 names.
    """
    current = run.current()
    used = {name: current.overrides.get(name, value) for name, value in checked(values).items()}
    if reporter.current().run:
        checked({**current.overrides, **current.config, **used})
        current.config |= used
        if context.rank() == 0:
            reporter.send({"kind": Kind.CONFIG, "rank": 0, "time": time.time(), "values": used})
    return used
