"""Tests that users see suggestions, hints and line numbers of their own cells in JupyterLab."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import write_notebook
from tests.browser.test_reattach import home_of

if TYPE_CHECKING:
    from tests.browser.lab import Lab
    from tests.hub import RunningHub

START = "%load_ext farandole\n%cluster start --workers 2 --backend torch"
TYPO = "%cluster strat"
FAILS = "%%distributed\nx = 1\nnumber = int('seven')"
WAITS = """\
%%distributed
import time, torch.distributed as dist, farandole as fd
time.sleep(16 if fd.rank() else 0)
dist.barrier()
"""


@pytest.mark.timeout(300)
def test_a_typo_an_error_of_a_rank_and_a_rank_that_waits_are_explained(hub: RunningHub, lab: Lab):
    write_notebook(home_of(hub, "leavitt") / "messages.ipynb", START, TYPO, FAILS, WAITS)
    lab.log_in("leavitt")
    lab.start_server("leavitt", "lean")
    lab.open_notebook("leavitt", "messages.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    expect(lab.run_cell(1)).to_contain_text("Did you mean 'start' or 'status'?")
    failed = lab.run_cell(2)
    expect(failed).to_contain_text("number = int('seven')")
    expect(failed).to_contain_text("invalid literal for int() with base 10: 'seven'")
    expect(failed).not_to_contain_text("http://")
    expect(lab.run_cell(3)).to_contain_text(re.compile(r"rank 0 waits in .*barrier"), timeout=60_000)
    lab.shoot("messages")
