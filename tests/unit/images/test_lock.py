"""Tests for the versions that `make lock` may choose."""

from __future__ import annotations

import tomllib

from images.lock import constraints
from images.names import NOTEBOOK, ROOT, SERVING, SERVING_TORCH, pinned

GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
OF_ENDPOINTS = [line.replace("[kafka]", "") for line in GROUPS["serving"]]
"""The group without extras, which constraints of pip cannot have."""


def test_notebooks_have_the_versions_of_the_checkout() -> None:
    assert constraints(NOTEBOOK).splitlines() == GROUPS["run"]


def test_endpoints_have_them_too_except_for_versions_that_kserve_excludes() -> None:
    lines = constraints(SERVING).splitlines()
    assert constraints(SERVING_TORCH).splitlines() == lines
    assert set(OF_ENDPOINTS) < set(lines)
    assert {line.partition("==")[0] for line in set(GROUPS["run"]) - set(lines)} == {"pandas", "psutil"}


def test_the_lock_file_of_endpoints_is_up_to_date() -> None:
    for line in OF_ENDPOINTS:
        name, _, wanted = line.partition("==")
        assert pinned(SERVING.requirements, name) == wanted
