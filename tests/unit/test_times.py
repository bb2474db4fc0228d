"""Tests for times and durations as text, with the durations of the page's test of `duration`."""

import pytest
from farandole.times import duration_text, parsed_time, short_text, time_text

AFTERNOON = 1795615512.0
"""2026-11-25 14:05:12 UTC"""


def test_durations_have_the_form_of_the_page():
    durations = [duration_text(seconds) for seconds in (-1, 0, 0.5, 61.5, 3723, 60204.5, 200000)]
    assert durations == ["0:00", "0:00", "0:01", "1:02", "1:02:03", "16:43:25", "2 d 7 h"]


def test_short_durations_have_three_digits_and_no_exponent():
    durations = [short_text(seconds) for seconds in (0, 4.9e-8, 4.92e-5, 0.0331, 0.9996, 1.234, 99.96, 1234)]
    assert durations == ["0 ms", "< 0.001 ms", "0.0492 ms", "33.1 ms", "1 s", "1.23 s", "100 s", "1234 s"]


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2026-11-25 14:05 UTC"),
        ("Europe/London", "2026-11-25 14:05 UTC"),
        ("Asia/Bangkok", "2026-11-25 21:05 UTC+07:00"),
        ("America/New_York", "2026-11-25 09:05 UTC-05:00"),
    ],
)
def test_a_time_names_its_zone(set_zone, zone, text):
    set_zone(zone)
    assert time_text(AFTERNOON) == text


def test_the_date_is_left_out_on_the_same_day(set_zone):
    set_zone("Asia/Bangkok")
    assert time_text(AFTERNOON, now=AFTERNOON - 3600) == "21:05 UTC+07:00"
    assert time_text(AFTERNOON, now=AFTERNOON + 4 * 3600) == "2026-11-25 21:05 UTC+07:00"


def test_a_precise_time_has_seconds(set_zone):
    set_zone("UTC")
    assert time_text(AFTERNOON, precise=True) == "2026-11-25 14:05:12 UTC"


@pytest.mark.parametrize("text", ["2026-11-25T14:05:12Z", "2026-11-25T15:05:12.000000+01:00"])
def test_a_time_in_a_message_is_parsed(text):
    assert parsed_time(text) == AFTERNOON


@pytest.mark.parametrize("text", [None, 5, "", "soon", "0001-01-01T00:00:00Z", "2026-99-99"])
def test_an_invalid_time_in_a_message_is_unknown(text):
    assert parsed_time(text) is None
