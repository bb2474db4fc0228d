"""Tests that the bench of snapshots measures what it says, with a few files."""

from bench.snapshot import measure


def test_a_small_home_is_measured():
    records = {record.name: record for record in measure(1, files=200)}
    assert list(records) == [
        "snapshot_first_s",
        "snapshot_changed_s",
        "snapshot_restore_s",
        "snapshot_added_mb",
        "snapshot_repository_mb",
    ]
    assert records["snapshot_first_s"].note == "200 files with 0 MB"
    # Two files of 1 kB have changed; restic also stores the folders above them.
    assert 0.002 < records["snapshot_added_mb"].value < 0.2 < records["snapshot_repository_mb"].value
