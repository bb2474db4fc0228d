"""Users' snapshots on a hub in pods: a notebook takes and restores them, and they are on a claim of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docker.remote_snapshots import check_snapshots

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

USER, OTHER = "ada", "grace"


def test_a_notebook_restores_a_file_and_no_other_user_reaches_its_snapshots(site: Site) -> None:
    check_snapshots(site, USER, OTHER)
    options = ("--password-file", "snapshots_secret", "--no-lock")
    found = site.kubectl(
        "exec", site.component("hub"), "--", "restic", "-r", f"snapshots/{USER}", *options, "snapshots"
    )
    assert "/home/user" in found
    assert site.get("pvc", "hub-snapshots")["status"]["phase"] == "Bound"
