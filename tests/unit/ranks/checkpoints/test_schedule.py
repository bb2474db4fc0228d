"""Checkpoints are due after a number of commits or after a time."""

from farandole.ranks.checkpoints.schedule import EveryCommits, EverySeconds, parse_every


def _due(every: EverySeconds | EveryCommits, clock: list[float], seconds: list[float]) -> tuple[list[int], list[int]]:
    """Commit after each duration in ``seconds``.

    Return the commits at which a decision was made, and those at which a checkpoint was due.
    """
    met, due, meet = [], [], every.next_decision(0)
    for commit, took in enumerate(seconds, 1):
        clock[0] += took
        if commit >= meet:
            met.append(commit)
            if every.due(commit):
                due.append(commit)
            meet = every.next_decision(commit)
    return met, due


def test_an_interval_in_commits() -> None:
    assert _due(EveryCommits(3), [0.0], [1.0] * 10) == ([3, 6, 9], [3, 6, 9])


def test_an_interval_of_time_is_exact_and_rarely_checked() -> None:
    clock = [100.0]
    met, due = _due(EverySeconds(10, lambda: clock[0]), clock, [0.01] * 5000)
    assert [round(commit / 100) for commit in due] == [10, 20, 30, 40]
    assert len(met) < 80


def test_slower_steps_delay_a_checkpoint_to_less_than_twice_the_interval() -> None:
    clock = [0.0]
    _, due = _due(EverySeconds(10, lambda: clock[0]), clock, [0.01] * 400 + [0.02] * 2000)
    assert due[0] <= 400 + 600 / 2 + 60


def test_each_step_longer_than_the_interval_is_due() -> None:
    clock = [0.0]
    assert _due(EverySeconds(1, lambda: clock[0]), clock, [5.0] * 4) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_stopped_clock_is_not_an_error() -> None:
    assert _due(EverySeconds(1, lambda: 0.0), [0.0], [0.0] * 3) == ([1, 2, 3], [])


def test_durations_have_units() -> None:
    for text, seconds in (("10s", 10), ("5min", 300), ("1.5 h", 5400), (" 2 s ", 2)):
        schedule = parse_every(text)
        assert isinstance(schedule, EverySeconds)
        assert schedule._seconds == seconds
    assert isinstance(parse_every(4), EveryCommits)
