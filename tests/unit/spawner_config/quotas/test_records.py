"""Tests for what the hub stores about homes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.quotas.records import FOLDER, LARGEST, HomeRecord, HomeRecords

if TYPE_CHECKING:
    from pathlib import Path

RECORD = HomeRecord(used=5, limit=7, time=1.5)


def test_a_record_is_replaced_and_belongs_to_one_user(tmp_path: Path) -> None:
    records = HomeRecords(tmp_path)
    assert records.read("ada") is None
    records.write("ada", HomeRecord(used=1, limit=2, time=1.0))
    records.write("ada", RECORD)
    records.write("../ada", HomeRecord(used=2, limit=2, time=1.0))
    assert records.read("ada") == RECORD
    names = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert len(names) == 2
    assert "ada.json" in names


def test_a_damaged_record_counts_as_none(tmp_path: Path) -> None:
    records = HomeRecords(tmp_path)
    records.write("ada", RECORD)
    for text in ("", "[1]", '{"used": 5}', '{"used": 5, "limit": 7, "time": 1, "more": 2}'):
        (tmp_path / FOLDER / "ada.json").write_text(text)
        assert records.read("ada") is None


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"used": 5},
        {"used": "5", "limit": 7},
        {"used": 5.0, "limit": 7},
        {"used": True, "limit": 7},
        {"used": -1, "limit": 7},
        {"used": 5, "limit": LARGEST + 1},
    ],
)
def test_an_invalid_request_is_no_record(body: Any) -> None:
    assert HomeRecord.parsed(body) is None


def test_only_the_numbers_of_a_request_are_stored() -> None:
    found = HomeRecord.parsed({"used": 5, "limit": 7, "time": 3.0, "note": "x" * 1000})
    assert found is not None
    assert (found.used, found.limit) == (5, 7)
    assert found.time > 3.0
