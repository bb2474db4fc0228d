"""The control thread releases a rank that waits for an absent peer. The error names the failed call."""

from pathlib import Path

from farandole.protocol import is_collective_failure

from tests.contract.worlds import run, world


def test_a_released_rank_of_horovod_reports_a_failed_collective(tmp_path: Path) -> None:
    result = tmp_path / "result"
    with world("horovod", 2) as environments:
        run(environments, "tests.contract.release_on_ranks", result)
    name, _, message = result.read_text().partition(": ")
    assert is_collective_failure(name, message), result.read_text()
