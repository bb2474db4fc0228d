"""Tests for the settings of mirrors, and for the record of the last one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from spawner_config.settings import SettingsError
from spawner_config.snapshots.mirrors import MIRROR, TOKENS, MirrorSettings
from spawner_config.snapshots.record import MirrorRecord, record_path

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "place",
    [
        "/mnt/mirror",
        "rest:https://hub.example.org/services/snapshots/mirrors",
        "rest:http://10.0.0.5:8000/services/snapshots/mirrors/",
        "s3:https://s3.example.org/bucket",
        "s3:s3.amazonaws.com/bucket/farandole",
    ],
)
def test_places(place: str) -> None:
    found = MirrorSettings.from_environment({MIRROR: place})
    assert found.snapshots_mirror == place.rstrip("/")
    assert found.snapshots_mirror_hours == 24


@pytest.mark.parametrize(
    "place",
    [
        "mirror",
        "./mirror",
        "rest:hub",
        "https://hub.example.org/",
        "s3:bucket",
        "b2:x:y",
        "rest:https://hub:99999/x",
        "rest:https://hub:port/x",
        "rest:https://:443/x",
        "s3:https://[::1/bucket/x",
    ],
)
def test_other_places_are_refused_with_examples(place: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{MIRROR} is '{re.escape(place)}'\. It must be the absolute path of a "):
        MirrorSettings.from_environment({MIRROR: place})


def test_an_address_with_a_login_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match=rf"^{MIRROR} has a login\. .* {MIRROR}_USER and _SECRET\.$"):
        MirrorSettings.from_environment({MIRROR: "rest:https://ada:secret@hub.example.org/"})


def test_tokens_of_other_hubs() -> None:
    found = MirrorSettings.from_environment({TOKENS: f"lab:{GOOD}, school:{GOOD[::-1]},"})
    assert found.snapshots_mirror_tokens == {"lab": GOOD, "school": GOOD[::-1]}
    assert GOOD not in repr(found)


@pytest.mark.parametrize("value", [GOOD, f"Lab:{GOOD}", f"lab:{GOOD},lab:{GOOD}", f"../x:{GOOD}", f":{GOOD}"])
def test_hubs_without_a_proper_name_are_refused_without_their_tokens(value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{TOKENS} must be NAME:TOKEN") as caught:
        MirrorSettings.from_environment({TOKENS: value})
    assert GOOD not in str(caught.value)


def test_weak_tokens_are_refused() -> None:
    with pytest.raises(SettingsError, match="the token of lab is too weak: it is not 64 hexadecimal digits"):
        MirrorSettings.from_environment({TOKENS: "lab:secret"})


def test_each_hub_has_a_token_of_its_own() -> None:
    with pytest.raises(SettingsError, match="the token of school is also that of another hub") as caught:
        MirrorSettings.from_environment({TOKENS: f"lab:{GOOD},school:{GOOD}"})
    assert GOOD not in str(caught.value)


def test_hours_are_at_least_one() -> None:
    with pytest.raises(SettingsError, match=f"^{MIRROR}_HOURS is '0'. It must be a number of hours, at least 1.$"):
        MirrorSettings.from_environment({f"{MIRROR}_HOURS": "0"})


@pytest.mark.parametrize("text", ["", "{", '{"place": "/mnt", "later": 1}', "[]", "3"])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    assert MirrorRecord.read(tmp_path) is None
    record_path(tmp_path).parent.mkdir(parents=True)
    record_path(tmp_path).write_text(text)
    assert MirrorRecord.read(tmp_path) is None
    record = MirrorRecord(place="/mnt", finished=1.5, problems=["x"], users={"ada": "ada"}, copied={"ada": "0"})
    record.write(tmp_path)
    assert MirrorRecord.read(tmp_path) == record
