"""Runs notebooks with other parameters, as a user would in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.clients.kernel import RemoteKernel

PARAMETERS = "parameters"
"""The tag of the only cell of a notebook that tests replace."""


def run_cells(kernel: RemoteKernel, parameters: str, *, deadline: float) -> dict[str, str]:
    """Run all cells of the notebook, with other parameters, and return their outputs.

    The key of an output is the first tag of the cell or, without tags, its first line. Each cell may take ``deadline``
    seconds.
    """
    outputs = {}
    for cell in kernel.code_cells():
        source = parameters if PARAMETERS in cell.tags else cell.source
        outputs[next(iter(cell.tags), source.splitlines()[0])] = kernel.execute(source, deadline=deadline)
    return outputs


def own_parameters(kernel: RemoteKernel, **changed: Any) -> str:
    """Return the parameters of the notebook itself, some of which are changed."""
    [source] = [cell.source for cell in kernel.code_cells() if PARAMETERS in cell.tags]
    lines = source.splitlines()
    for name, value in changed.items():
        [number] = [number for number, line in enumerate(lines) if line.startswith(f"{name} = ")]
        lines[number] = f"{name} = {value!r}"
    return "\n".join(lines)
