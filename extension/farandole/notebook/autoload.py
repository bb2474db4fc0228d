"""An IPython extension that loads the extension ``farandole`` when a magic is first used.

Kernels start with this extension instead of ``farandole``, whose imports take about half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.notebook.help import ask_for_help

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

MAGICS = {
    "cluster": "line",
    "distributed": "cell",
    "distributed_train": "line_cell",
    "push": "line",
    "pull": "line",
    "runs": "line",
    "models": "line",
    "serve": "line",
    "snapshot": "line",
    "dataset": "line",
}
"""The names of the magics and their kinds."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the names of the magics and the display for runs, without the modules that implement them."""
    for name, kind in MAGICS.items():
        shell.magics_manager.register_lazy(name, "farandole", kind)
    if shell.display_formatter is not None:
        bundles = shell.display_formatter.mimebundle_formatter
        bundles.for_type_by_name("farandole.runs.run", "Run", _run_bundle)
    if ask_for_help not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(ask_for_help)


def _run_bundle(run: Any) -> dict[str, Any]:
    from farandole.notebook.display import run_bundle

    return run_bundle(run)
