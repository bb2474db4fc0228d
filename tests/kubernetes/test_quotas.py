"""The size of homes on a hub in pods: claims have it, and homes that share a file system are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.full_homes import CELL_SECONDS, LIMIT, MIB, FullHome
from tests.hub import LIMITED_USER

if TYPE_CHECKING:
    from tests.kubernetes.site import Site


@pytest.mark.release
def test_a_user_fills_a_home_whose_class_does_not_enforce_its_size(site: Site) -> None:
    assert "Your home may take 200 MiB" in site.browser(LIMITED_USER).spawn_page()
    with site.kernel(LIMITED_USER) as kernel:
        request = site.get("pvc", f"farandole-home-{LIMITED_USER}")["spec"]["resources"]["requests"]
        assert request == {"storage": f"{LIMIT // MIB}Mi"}
        home = FullHome(kernel, enforced=False)
        home.check_before()
        home.check_warning()
        home.check_full()
        with site.kernel("grace") as other:
            assert "2" in other.execute("print(1 + 1)", deadline=CELL_SECONDS)
        home.check_after()
    for user in (LIMITED_USER, "grace"):
        site.browser(user).stop_notebook()
    assert "MiB of 200 MiB used" in site.browser(LIMITED_USER).spawn_page()
