from __future__ import annotations

from farandole.runs import logs
from farandole.runs.logs import RankLogs


def test_the_tail_has_complete_lines_across_pieces():
    kept = RankLogs()
    for piece in ("one\ntw", "o\nthr", "ee"):
        kept.add(1, piece)
    assert kept.tail(1, 2) == "two\nthree"
    assert kept.tail(1, 10) == "one\ntwo\nthree"


def test_a_silent_rank_has_an_empty_log():
    assert RankLogs().tail(3, 5) == ""


def test_old_output_is_dropped_and_each_rank_has_its_own_limit(monkeypatch):
    monkeypatch.setattr(logs, "KEPT_CHARACTERS", 100)
    kept = RankLogs()
    kept.add(0, "quiet rank\n")
    for number in range(100):
        kept.add(1, f"line {number:03}\n")
    assert kept.tail(0, 1) == "quiet rank"
    lines = kept.tail(1, 1000).splitlines()
    assert lines[-1] == "line 099"
    assert 10 <= len(lines) <= 12


def test_one_piece_larger_than_the_limit_is_kept(monkeypatch):
    monkeypatch.setattr(logs, "KEPT_CHARACTERS", 10)
    kept = RankLogs()
    kept.add(0, "a long last word before the end")
    assert kept.tail(0, 1) == "a long last word before the end"


def test_a_progress_bar_keeps_only_its_last_frame_and_pushes_nothing_out(monkeypatch):
    monkeypatch.setattr(logs, "KEPT_CHARACTERS", 100)
    kept = RankLogs()
    kept.add(0, "first\n")
    for step in range(100):
        kept.add(0, f"\rstep {step} of 100")
    assert kept.tail(0, 5) == "first\nstep 99 of 100"
