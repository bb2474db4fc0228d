"""Tests for the package sources of the images, and for the comparison of Debian packages with the recorded packages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from images import debian
from images.build import BuildError, check_debian, week
from images.debian import DebianError, Record, complaint, differences, read_record, sources
from images.lock_debian import moment_of
from images.names import HUB, NOTEBOOK, NOTEBOOK_CUDA, SERVING, SERVING_TORCH, Image

if TYPE_CHECKING:
    from pathlib import Path

EACH = pytest.mark.parametrize("image", [HUB, NOTEBOOK, SERVING], ids=lambda image: image.name)
MOMENT = "20261121T000000Z"
MIRROR = "http://mirror.example.org/debian"
DATED = f"{MIRROR}/{MOMENT}"


def test_a_mirror_serves_releases_updates_and_security_fixes() -> None:
    assert sources(f"{MIRROR}/").splitlines() == [
        f"deb {MIRROR} bookworm main",
        f"deb {MIRROR} bookworm-updates main",
        f"deb {MIRROR}-security bookworm-security main",
    ]


def test_a_dated_archive_may_have_expired() -> None:
    security = f"{MIRROR}-security/{MOMENT}"
    assert sources(DATED).splitlines() == [
        f"deb [check-valid-until=no] {DATED} bookworm main",
        f"deb [check-valid-until=no] {DATED} bookworm-updates main",
        f"deb [check-valid-until=no] {security} bookworm-security main",
    ]


@pytest.mark.parametrize(
    "address",
    [
        "https://mirror.example.org/debian",
        "http://mirror.example.org",
        "http://debian",
        "http://a/debian b",
        "20261121",
    ],
)
def test_an_address_that_apt_cannot_use_is_refused_with_examples(address: str) -> None:
    with pytest.raises(DebianError, match="DEBIAN is .* such as http://mirror.example.org/debian"):
        sources(address)


def test_apts_sources_are_collected_and_removed(tmp_path: Path) -> None:
    debian.gather(DATED, tmp_path / "debian")
    assert (tmp_path / "debian" / "sources.list").read_text() == sources(DATED)
    assert "/mnt/sources.list" in (tmp_path / "debian" / "apt.conf").read_text()
    debian.gather("", tmp_path / "debian")
    assert {path.name: path.read_text() for path in (tmp_path / "debian").iterdir()} == {"apt.conf": ""}


def test_differences_name_the_package_and_both_versions() -> None:
    recorded = {"libssl3": "3.0.20-1", "tini": "0.19.0-1", "zlib1g": "1.2.13"}
    built = {"libssl3": "3.0.22-1", "python3": "3.11.2-1", "zlib1g": "1.2.13"}
    assert differences(recorded, built) == [
        "libssl3 3.0.22-1 (recorded: 3.0.20-1)",
        "python3 3.11.2-1 (recorded: none)",
        "tini missing (recorded: 0.19.0-1)",
    ]


def test_a_long_list_of_differences_is_shortened() -> None:
    record = read_record(HUB.debian)
    names = sorted(record.packages)
    said = complaint(HUB, {**record.packages, **dict.fromkeys(names[:23], "0-other")}).splitlines()
    assert [line.split()[0] for line in said[1:21]] == names[:20]
    assert said[21] == "  and 3 more"
    assert "and" not in complaint(HUB, {**record.packages, **dict.fromkeys(names[:20], "0-other")}).split()


def test_a_build_updates_packages_once_a_week() -> None:
    assert week(datetime(2026, 11, 22, 23, 59, tzinfo=UTC)) == "2026-W47"
    assert week(datetime(2026, 11, 23, tzinfo=UTC)) == "2026-W48"
    assert week(datetime(2027, 1, 1, tzinfo=UTC)) == "2026-W53"


@EACH
def test_the_week_reaches_the_stage_with_the_packages(image: Image) -> None:
    base = image.dockerfile.read_text().partition("AS base\n")[2].partition("\nFROM ")[0]
    assert base.index("ARG WEEK\n") < base.index("\nRUN ")


@EACH
def test_no_step_uses_the_package_lists_of_an_earlier_one(image: Image) -> None:
    steps = re.split(r"(?m)^(?=[A-Z]+ )", image.dockerfile.read_text())
    installing = [step for step in steps if "apt-get install" in step]
    assert len(installing) >= 2
    for step in installing:
        assert "apt-get update" in step.partition("apt-get install")[0], step


def test_a_record_survives_a_round_trip(tmp_path: Path) -> None:
    record = Record(moment=MOMENT, packages={"zlib1g": "1:1.2.13.dfsg-1", "tini": "0.19.0-1+b3"})
    path = tmp_path / "debian.txt"
    path.write_text(record.text())
    assert path.read_text().splitlines()[1:] == [f"# {MOMENT}", "tini=0.19.0-1+b3", "zlib1g=1:1.2.13.dfsg-1"]
    assert read_record(path) == record


def test_a_missing_record_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(DebianError, match="make lock-debian"):
        read_record(tmp_path / "debian.txt")


@pytest.mark.parametrize(
    "image", [HUB, NOTEBOOK, NOTEBOOK_CUDA, SERVING, SERVING_TORCH], ids=lambda image: image.tag("1")
)
def test_each_image_has_a_record_of_a_moment(image: Image) -> None:
    record = read_record(image.debian)
    assert {"libc6", "python3", "tini", "ca-certificates"} <= record.packages.keys()
    assert re.fullmatch(r"\d{8}T\d{6}Z", record.moment)


def test_a_build_continues_with_other_packages_and_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    record = read_record(HUB.debian)
    check_debian(HUB, {**record.packages, "tini": "0-fixed"}, exact=False)
    said = capsys.readouterr().err
    assert f"debian.txt:\n  tini 0-fixed (recorded: {record.packages['tini']})\n`make images" in said
    assert f"archive at {record.moment}" in said
    assert "make lock-debian" in said
    check_debian(HUB, record.packages, exact=False)
    assert capsys.readouterr().err == ""


def test_a_build_from_a_given_archive_has_the_recorded_packages_or_fails() -> None:
    record = read_record(NOTEBOOK.debian)
    check_debian(NOTEBOOK, record.packages, exact=True)
    with pytest.raises(BuildError, match=r"(?s)images/notebook/debian.txt:\n  tini missing .* was not tagged"):
        check_debian(NOTEBOOK, {k: v for k, v in record.packages.items() if k != "tini"}, exact=True)


def test_the_record_names_the_moment_of_the_archive() -> None:
    now = datetime(2026, 11, 21, 22, 15, tzinfo=UTC)
    assert moment_of(MIRROR, now) == "20261121T221500Z"
    assert moment_of(DATED, now) == MOMENT
