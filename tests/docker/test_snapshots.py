"""Users' snapshots on a hub in containers: a notebook takes and restores them, and the operator mirrors them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spawner_config.snapshots.settings import PORT
from tests.docker.conftest import MIRROR
from tests.docker.probes import reached
from tests.docker.remote_snapshots import check_snapshots

if TYPE_CHECKING:
    from tests.docker.stack import Stack

MIRRORS = ("python", "-m", "hub.services.snapshots.mirrors")


def in_hub(stack: Stack, *command: str) -> str:
    """Return the output of a command in the hub's container, as an operator gets it."""
    return stack.compose("exec", "-T", "hub", *command).stdout


def test_a_notebook_restores_a_file_and_no_other_user_reaches_its_snapshots(stack: Stack) -> None:
    check_snapshots(stack, "ada", "grace")
    with stack.kernel("grace") as grace:
        assert reached(grace, [("proxy", 8000), ("hub", PORT), ("hub-api", PORT)]) == [("proxy", 8000)]


def test_an_operator_finds_and_mirrors_the_snapshots(stack: Stack) -> None:
    with stack.kernel("ada") as ada:
        ada.execute("%snapshot take", deadline=120)
    options = ("--password-file", "snapshots_secret", "--no-lock")
    assert "/home/user" in in_hub(stack, "restic", "-r", "snapshots/ada", *options, "snapshots")
    in_hub(stack, "mkdir", "--parents", MIRROR)
    assert "are mirrored" in in_hub(stack, *MIRRORS, "now")
    assert "ada: " in in_hub(stack, *MIRRORS, "check")
