"""Tests for what users read if restic fails."""

from __future__ import annotations

import pytest
from farandole.snapshots.failures import restic_error


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "Save(<data/2e>) returned error, retrying after 1s: server response unexpected: 507 Full (507)",
            "is full, so",
        ),
        ("Fatal: unable to save snapshot: write /r/data/23: no space left on device", "is full"),
        ("Save(<data/2e1b>) returned error, retrying after 1s: write /r/d: no space left on device", "is full"),
        ("ignoring error for /data/x: write /home/ada/x: no space left on device", "no room left on the disk"),
        ("ignoring error for /data/x: write /home/ada/x: disk quota exceeded", "no room left on the disk"),
        (
            "Load(<data/507>, 507, 403) returned error, retrying after 1s: unexpected HTTP response (404): 404",
            "damaged",
        ),
        (
            "Fatal: unable to open config file: unexpected HTTP response (403): 403 Forbidden",
            "no longer lets this server",
        ),
        (
            'Fatal: unable to open config file: Head "http://hub": dial tcp: connection refused',
            "The hub does not answer",
        ),
        ('List() returned error: Get "http://hub/": dial tcp: connect: connection refused', "The hub does not answer"),
        ("Fatal: unable to save snapshot: snapshot is empty", "Your home has no files, except those"),
        ("Fatal: something new.", "restic failed: something new. Try again"),
        ("", "restic failed"),
    ],
)
def test_what_restic_reports_is_explained(line, message):
    assert message in str(restic_error([line]))
