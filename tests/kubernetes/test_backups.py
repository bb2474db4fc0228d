"""A hub in pods is backed up to a claim while it runs, and restored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spawner_config.settings import ROOT
from tests.kubernetes.site import INSTALL_SECONDS, USERS_PODS, claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.site import Site

pytestmark = pytest.mark.release

USER = "berta"
PLACE = "backups"
CELL_SECONDS = 120.0
SECONDS = 600


@pytest.fixture
def place(site: Site) -> Iterator[str]:
    site.kubectl("apply", "--filename=-", typed=json.dumps(claim(PLACE)))
    yield f"claim:{PLACE}"
    site.kubectl("delete", "pvc", PLACE)


def backup(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program behind `make backup` in the operator's folder."""
    program, _, kubeconfig = site.node.command()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FARANDOLE_")}
    path = f"{Path(program).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "hub.backup", "--site", "kubernetes", *words],
        cwd=site.folder,
        env={**kept, "PYTHONPATH": str(ROOT), "KUBECONFIG": kubeconfig, "PATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_hub_in_pods_is_backed_up_and_restored(site: Site, place: str) -> None:
    with site.kernel(USER) as kernel:
        kernel.execute("open('notes.txt', 'w').write('first')", deadline=CELL_SECONDS)
        done = backup(site, "save", place)
        assert not done.returncode, done.stderr
        assert f"home/{USER}: " in done.stderr
        kernel.execute("open('notes.txt', 'w').write('second')", deadline=CELL_SECONDS)
    done = backup(site, "restore", "--replace", "yes", place)
    assert "The hub is running, and nothing was changed. Stop it: kubectl -n farandole scale" in done.stderr
    site.kubectl("scale", "deployment/hub", "--replicas=0")
    try:
        site.kubectl("wait", "--for=delete", "pod", "--selector=app=farandole,component=hub", "--timeout=120s")
        assert "servers of users are running" in backup(site, "restore", "--replace", "yes", place).stderr
        site.kubectl("delete", "pods", f"--selector={USERS_PODS}")
        done = backup(site, "restore", "--replace", "yes", place)
        assert not done.returncode, done.stderr
        assert "The present state is backed up first." in done.stderr
    finally:
        site.kubectl("scale", "deployment/hub", "--replicas=1")
        site.kubectl("rollout", "status", "deployment/hub", f"--timeout={INSTALL_SECONDS}s")
    site.wait_ready()
    with site.kernel(USER) as kernel:
        assert "READ first" in kernel.execute("print('READ', open('notes.txt').read())", deadline=CELL_SECONDS)
