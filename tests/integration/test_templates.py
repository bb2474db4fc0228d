"""Runs every template on a real hub, with small sizes in place of its cell of parameters.

The ranks are processes of the notebook server, which start faster than workers. tests/browser/test_templates.py runs
the image classifier on workers, and the tests with the marker `release` run all templates on workers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from farandole.server.panel.routes.templates import HUB_START, LOCAL_START, NAMES

from tests.clients.kernel import RemoteKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hub import RunningHub

USER = "tessa"
CELL_DEADLINE = 240.0
RELEASED = ("sequence-model", "fine-tuning", "plain-ddp")
"""The templates that only `make release` trains."""
SMALL = {"EPOCHS": 1, "TUNING_EPOCHS": 2, "CHANNELS": 4, "HIDDEN": 8, "BATCH_SIZE": 64}


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> tuple[str, str]:
    """The address of the user's notebook server, and a token for it."""
    return hub.start_notebook(USER), hub.browser(USER).make_token()


def smaller(parameters: str) -> str:
    """Return the cell of parameters with the values of `SMALL`."""
    for name, value in SMALL.items():
        parameters = re.sub(rf"^{name} = [\d.]+", f"{name} = {value}", parameters, flags=re.MULTILINE)
    return parameters


def on_this_machine(source: str) -> str:
    """Return a cell that starts its ranks on the machine of the notebook server, not on workers."""
    return source.replace(HUB_START, LOCAL_START)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "place", [on_this_machine, pytest.param(str, marks=pytest.mark.release)], ids=["local", "workers"]
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.release) if name in RELEASED else name for name in NAMES]
)
def test_a_template_trains_on_two_ranks(
    hub: RunningHub, server: tuple[str, str], name: str, place: Callable[[str], str]
) -> None:
    address, token = server
    answer = hub.api(token, "POST", f"/user/{USER}/farandole/panel/templates/{name}", {"folder": ""})
    assert answer.status_code == 201, answer.text
    result = ""
    with RemoteKernel(address, token, answer.json()["path"]) as kernel:
        for cell in kernel.code_cells():
            source = smaller(cell.source) if "parameters" in cell.tags else cell.source
            output = kernel.execute(place(source), deadline=CELL_DEADLINE)
            result = output if "result" in cell.tags else result
    assert re.match(r"{'(accuracy|error of the model in km)': \d", result), result
