from __future__ import annotations

import pytest

from spawner_config.images import VERSION_LABEL, missing_image, wrong_version

IMAGE = "farandole-notebook:0.2.0"


def described(labels):
    return {"Config": {"Labels": labels}}


def test_an_image_of_the_hubs_version_is_right():
    assert wrong_version(IMAGE, described({VERSION_LABEL: "0.2.0"}), "0.2.0") is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (described({VERSION_LABEL: "0.1.0"}), "is of version 0.1.0"),
        (described({"other": "0.2.0"}), "has no version"),
        (described(None), "has no version"),
        ({"Config": None}, "has no version"),
    ],
)
def test_another_version_is_told_with_both_and_the_remedy(found, words):
    problem = wrong_version(IMAGE, found, "0.2.0")
    assert problem is not None
    for part in (IMAGE, words, "the hub is of version 0.2.0", "FARANDOLE_VERSION in .env"):
        assert part in problem


def test_a_missing_image_is_told_with_the_engines_reason():
    told = missing_image(IMAGE, "no route\n")
    assert f"{IMAGE} is not on this host, and the engine cannot pull it: no route. " in told
