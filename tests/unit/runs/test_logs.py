from __future__ import annotations

import json

from farandole.runs import logs, writer
from farandole.runs.logs import RankLogs
from farandole.runs.positions import cut_back
from farandole.runs.writer import RunFiles

LOG = "logs/rank-0.log"


def times(folder):
    return [json.loads(line) for line in (folder / "times/rank-0.jsonl").read_text().splitlines()]


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


def test_the_times_of_output_are_recorded_at_most_once_a_second(tmp_path):
    files = RunFiles(tmp_path)
    # The clock is set back before the last line.
    for printed in (10.0, 10.5, 11.0, 11.2, 5.0):
        files.append({LOG: "größe\n"}, printed=printed)
    files.append({"metrics/rank-0.jsonl": "{}\n"})
    files.flush()
    files.append({LOG: "end\n"}, printed=20.0)
    files.flush()
    assert times(tmp_path) == [[0, 10.0], [16, 11.0], [32, 5.0], [40, 20.0]]


def test_a_driver_that_takes_over_continues_the_times(tmp_path):
    files = RunFiles(tmp_path)
    files.append({LOG: "one\n"}, ("kernel", 1), 10.0)
    files.flush()
    for name, text in ((LOG, "tw"), ("times/rank-0.jsonl", "[4,12.0]\n[")):
        with (tmp_path / name).open("a") as file:
            file.write(text)
    again = RunFiles(tmp_path, written=cut_back(tmp_path))
    again.append({LOG: "two\n"}, ("kernel", 2), 12.0)
    again.flush()
    assert (tmp_path / LOG).read_text() == "one\ntwo\n"
    assert times(tmp_path) == [[0, 10.0], [4, 12.0]]


def test_times_fit_a_log_whose_beginning_was_forgotten_while_the_disk_was_full(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "LOG_LIMIT", 10)
    folder = tmp_path / "run"
    folder.write_text("a file, in which no file can be written")
    files = RunFiles(folder)
    files.append({LOG: "lost\n"}, printed=1.0)
    files.flush()
    files.append({LOG: "123456789\n"}, printed=5.0)
    files.append({LOG: "abc\n"}, printed=9.0)
    folder.unlink()
    files.flush(force=True)
    files.append({LOG: "end\n"}, printed=20.0)
    files.flush()
    assert (folder / LOG).read_text() == "56789\nabc\nend\n"
    assert times(folder) == [[10, 20.0]]
