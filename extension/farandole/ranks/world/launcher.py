"""Gives a rank what launchers such as torchrun and ``accelerate launch`` give to a script.

Libraries look at the interpreter and its environment to find out whether a launcher has started the process. The driver
sets the environment variables that only depend on the rank's numbers, see `farandole.driver.world.backends`.
"""

from __future__ import annotations

import functools
import sys

from farandole.ranks import context
from farandole.ranks.world import cores

_prompt: dict[str, object] = {}
"""The prompt of this kernel while it is hidden."""


@functools.cache
def clear_arguments() -> None:
    """Remove the kernel's own arguments, which the ``argparse`` of a script would reject.

    Later calls do nothing, so that the arguments that a cell sets remain.
    """
    del sys.argv[1:]


def set_up() -> dict[str, str]:
    """Prepare this process for the world that the environment variables describe. Return more variables to set."""
    has_launcher = context.backend() == "torch"
    _hide_prompt() if has_launcher else _restore_prompt()
    threads = cores.share_cores() if context.backend() != "none" else {}
    return threads | (_accelerate() if has_launcher else {})


def _hide_prompt() -> None:
    """Make libraries treat this process as a script. Lightning refuses distributed strategies in a console."""
    if hasattr(sys, "ps1"):
        _prompt["ps1"] = sys.ps1
        del sys.ps1


def _restore_prompt() -> None:
    """Make libraries treat this process as a console again, in which Lightning starts no processes of its own."""
    vars(sys).update(_prompt)


def _accelerate() -> dict[str, str]:
    """Return the variable that makes Accelerate use the process group of ranks without a GPU."""
    import torch

    return {} if torch.cuda.is_available() else {"ACCELERATE_USE_CPU": "true"}
