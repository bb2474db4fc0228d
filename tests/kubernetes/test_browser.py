"""Run the unchanged first notebook in a real browser. Its two workers are pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docker.remote_hub import ADMIN
from tests.docker.test_browser import train_in_the_first_notebook

if TYPE_CHECKING:
    from tests.browser.lab import Lab
    from tests.kubernetes.site import Site


@pytest.mark.release
def test_the_first_notebook_trains_over_two_worker_pods(site: Site, lab: Lab) -> None:
    train_in_the_first_notebook(lab, lambda: len(site.workers(ADMIN)))
    site.wait_gone(ADMIN, "main-w0", "main-w1")
    site.browser(ADMIN).stop_notebook()
    site.wait_gone(ADMIN, "")
