from __future__ import annotations

import tomllib

from images.extra import profile
from spawner_config.profiles.profiles import parse_profiles


def test_the_hub_can_read_the_printed_profile():
    [read] = parse_profiles(tomllib.loads(profile("course-2026", "farandole-notebook-course-2026:0.1.0"))).profiles
    assert (read.name, read.image) == ("course-2026", "farandole-notebook-course-2026:0.1.0")
