"""Tests for the sizes of images as text, and for their limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from images.build import BuildError, check_size
from images.names import HUB, NOTEBOOK, SERVING, SERVING_TORCH, size_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that puts a program in place of `docker`, whose images have a given size in bytes."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def build(size: int) -> None:
        program = tmp_path / "docker"
        program.write_text(f"#!/bin/sh\necho '{json.dumps([{'Size': size}])}'\n")
        program.chmod(0o755)

    return build


def test_the_limits_of_images_are_in_mebibytes() -> None:
    limits = [image.limit for image in (HUB, NOTEBOOK, SERVING, SERVING_TORCH)]
    assert [size_text(limit) for limit in limits if limit] == ["410 MiB", "1383 MiB", "429 MiB", "1049 MiB"]


def test_a_size_may_not_exceed_its_limit_by_a_byte(built: Callable[[int], None]) -> None:
    assert HUB.limit is not None
    built(HUB.limit)
    assert check_size(HUB, "id") == HUB.limit
    built(HUB.limit + 1)
    with pytest.raises(BuildError, match="farandole-hub has "):
        check_size(HUB, "id")


def test_an_image_that_is_too_large_is_named_with_its_size_and_limit(built: Callable[[int], None]) -> None:
    built(420 * 2**20)
    with pytest.raises(BuildError, match=r"farandole-hub has 420 MiB, more than its limit of 410 MiB\. "):
        check_size(HUB, "id")
