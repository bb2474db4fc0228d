"""Users who fill their homes on hubs in containers, whose engine enforces the size of homes or does not."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from images.names import HUB, NOTEBOOK, version
from tests.docker.engines import second
from tests.docker.engines.debian import install, run
from tests.docker.stack import Stack, running
from tests.full_homes import CELL_SECONDS, LIMIT, MIB, SIZE, FullHome
from tests.hub import LIMITED_USER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.release
ENGINE = "farandole-q"
DISK, MOUNT = second.STATE / f"{ENGINE}.img", second.STATE / f"{ENGINE}-disk"
DISK_BYTES = 24 * 2**30
LIMITS = {"FARANDOLE_HOME_SIZE": SIZE, "FARANDOLE_SCRATCH": "100M"}
SECONDS = 120.0

FILL_UP = """
import os
with open(os.path.expanduser("~/big.bin"), "ab", buffering=0) as file:
    try:
        while True:
            file.write(bytes({size}))
    except OSError as exc:
        print(exc)
"""


@contextmanager
def xfs_disk() -> Iterator[Path]:
    """Mount a new XFS file system with project quotas from a sparse file, and remove both at the end."""
    install({"mkfs.xfs": "xfsprogs"})
    remove_disk()
    with DISK.open("wb") as file:
        file.truncate(DISK_BYTES)
    try:
        run("mkfs.xfs", "-q", str(DISK))
        MOUNT.mkdir()
        run("mount", "-o", "loop,pquota", str(DISK), str(MOUNT))
        yield MOUNT
    finally:
        remove_disk()


def remove_disk() -> None:
    """Remove the disk, also one that a killed session has left."""
    if MOUNT.is_mount():
        run("umount", str(MOUNT))
    if MOUNT.exists():
        MOUNT.rmdir()
    DISK.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def quota_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run a hub on a second engine whose volumes are on a disk with project quotas."""
    with xfs_disk() as disk:
        engine = second.SecondEngine(
            name=ENGINE,
            cable=IPv4Network("10.217.255.0/30"),
            containers=IPv4Network("10.217.0.0/24"),
            settings={"data-root": str(disk / "data")},
        )
        with second.running(engine):
            engine.copy(HUB.tag(version()), NOTEBOOK.tag(version()))
            folder = tmp_path_factory.mktemp("quotas")
            with running(folder, subnets="10.217.128.0/20", engine=engine, **LIMITS) as stack:
                yield stack


def test_a_home_without_a_quota_is_measured(stack: Stack) -> None:
    with stack.kernel(LIMITED_USER, "small") as kernel:
        home = FullHome(kernel, enforced=False, profile="small")
        home.check_before()
        home.check_warning()
        home.check_full()
        with stack.kernel("grace", "small") as other:
            assert "2" in other.execute("print(1 + 1)", deadline=CELL_SECONDS)
        home.check_after()
    browser = stack.browser(LIMITED_USER)
    browser.stop_notebook()
    assert "MiB of 200 MiB used" in browser.spawn_page()
    assert "The engine's disk has no project quotas" in stack.compose("logs", "hub").stdout


def test_the_engine_enforces_a_quota(quota_stack: Stack) -> None:
    with quota_stack.kernel("ada") as kernel:
        volume = f"{quota_stack.name}-home-ada"
        assert f'"size": "{LIMIT}"' in quota_stack.docker("volume", "inspect", volume)
        home = FullHome(kernel, enforced=True)
        home.check_before()
        home.check_warning()
        home.check_full()
        with quota_stack.kernel("grace") as other:
            assert "2" in other.execute("print(1 + 1)", deadline=CELL_SECONDS)
        home.check_after()
    assert "project quotas" not in quota_stack.compose("logs", "hub").stdout


def test_the_engine_limits_what_a_server_writes_elsewhere(quota_stack: Stack) -> None:
    with quota_stack.kernel("emmy") as kernel:
        code = FILL_UP.replace("~/big.bin", "/tmp/big.bin").format(size=1 << 20)
        code += "\nprint(os.path.getsize('/tmp/big.bin') >> 20)\nos.unlink('/tmp/big.bin')"
        said = kernel.execute(code, deadline=CELL_SECONDS)
        error, size = said.split("\n")[:2]
        assert "No space left" in error or "quota" in error
        assert 50 < int(size) <= 100


def test_a_user_whose_home_is_full_can_open_it_and_delete_files(quota_stack: Stack) -> None:
    with quota_stack.kernel("emmy") as kernel:
        for size in (1 << 20, 1 << 12, 1):
            kernel.execute(FILL_UP.format(size=size), deadline=CELL_SECONDS)
    quota_stack.browser("emmy").stop_notebook()
    with quota_stack.kernel("emmy", path="other.ipynb") as kernel:
        kernel.execute("import os; os.unlink(os.path.expanduser('~/big.bin'))", deadline=CELL_SECONDS)
        assert "written" in kernel.execute("open('new', 'w').write('x'); print('written')", deadline=CELL_SECONDS)


def fill_up(path: Path) -> None:
    """Append to a file until its disk is full."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_hub_on_a_full_disk_lets_users_log_in(quota_stack: Stack) -> None:
    """Fill the disk of the hub's state, as users without quotas could: the reserve of the database is enough."""
    filler = MOUNT / "filler"
    found = os.statvfs(MOUNT)
    try:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - MIB)
        fill_up(filler)
        for number in range(20):
            quota_stack.sign_up(f"user-{number}")
            assert quota_stack.browser(f"user-{number}").make_token()
    finally:
        filler.unlink(missing_ok=True)
    wait_until(lambda: quota_stack.browser("user-0").spawn_page() != "", SECONDS)
    with quota_stack.kernel("grace") as kernel:
        assert "2" in kernel.execute("print(1 + 1)", deadline=CELL_SECONDS)
