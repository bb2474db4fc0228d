"""The control thread releases a rank that waits for an absent peer, with an error that names the call."""

from pathlib import Path

from farandole.protocol import is_collective_failure

from tests.contract.worlds import run, world


def test_a_rank_of_horovod_that_is_let_go_says_that_a_collective_failed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with world("horovod", 2) as environments:
        run(environments, "tests.contract.release_on_ranks", told)
    name, _, message = told.read_text().partition(": ")
    assert is_collective_failure(name, message), told.read_text()
