"""Tests for logs whose size is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spawner_config.quotas.logs import bound_log

if TYPE_CHECKING:
    from pathlib import Path


def test_a_long_log_keeps_its_last_lines_and_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("ab", buffering=0) as server:
        for number in range(200):
            server.write(f"line {number}\n".encode())
        bound_log(path, most=10_000, kept=30)
        assert path.stat().st_size == 1690
        bound_log(path, most=1000, kept=30)
        assert path.read_text() == "line 198\nline 199\n"
        server.write(b"more\n")
    assert path.read_text() == "line 198\nline 199\nmore\n"
