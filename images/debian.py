"""The archive from which a build installs Debian packages, and the record of the expected packages.

Python packages are pinned by version, but Debian packages are only recorded. Debian's archive removes a version when a
fixed version is released, so a pinned version would break the build or prevent the fix. The variable DEBIAN can name an
archive that still has the recorded versions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from images.engine import StepError
from images.names import BUILD, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from images.names import Image

RELEASE = "bookworm"
FOLDER = BUILD / "debian"
ADDRESS = re.compile(r"(http://[^/\s]+(?:/[^/\s]+)*?)/debian(/\S*)?")
SHOWN = 20
"""The maximum number of differing packages that a build lists."""
DATED = re.compile(r"/(\d{8}T\d{6}Z)(/|$)")
MOMENT = re.compile(r"# (\d{8}T\d{6}Z)")
BASE = "debian:bookworm-slim"
# apt downgrades packages only if the priority is above 1000. The base image may have newer packages than the archive.
PREFERENCES = "Package: *\nPin: release o=Debian\nPin-Priority: 1001\n"
APT = """Dir::Etc::sourcelist "/mnt/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "/mnt/preferences";
"""


class DebianError(StepError):
    """Raised when DEBIAN or a record cannot be used; the message says what it should contain."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The versions of an image's Debian packages by name, and a UTC time when Debian's archive had all of them."""

    moment: str
    packages: Mapping[str, str]

    def text(self) -> str:
        """Return the content of the record's file."""
        lines = [f"{name}={version}" for name, version in sorted(self.packages.items())]
        return "\n".join(["# Written by `make lock-debian`; Debian's archive of:", f"# {self.moment}", *lines, ""])


def read_record(path: Path) -> Record:
    """Read the record of an image; raises `DebianError` if the file is missing or is not a record."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    moments = [match[1] for line in lines if (match := MOMENT.fullmatch(line))]
    packages = dict(line.split("=", 1) for line in lines if not line.startswith("#") and "=" in line)
    if not moments or not packages:
        raise DebianError(f"{path} is not a record of an image's Debian packages. Run `make lock-debian`.")
    return Record(moment=moments[0], packages=packages)


def installed(image: str) -> dict[str, str]:
    """Return the versions of all Debian packages in a built image, by name; raises `DebianError`."""
    command = ["docker", "run", "--rm", "--pull=never", "--network=none", "--entrypoint=dpkg-query", image]
    command += ["--show", "--showformat", "${Package}=${Version}\n"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    if answer.returncode:
        raise DebianError(
            f"The Debian packages of the image {image} cannot be listed: {answer.stderr.strip()}\n"
            "Make sure that `docker run` works here, and build again. Finished layers are kept."
        )
    return dict(line.split("=", 1) for line in answer.stdout.splitlines())


def own_archive() -> str:
    """Return the address of the Debian archive that the base image uses; raises `DebianError`."""
    command = ["docker", "run", "--rm", "--network=none", BASE, "cat", "/etc/apt/sources.list"]
    command += ["/etc/apt/sources.list.d/debian.sources"]
    # Only one of the two files exists, so `cat` may fail although its output is complete.
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    match = re.search(r"^(?:URIs:|deb .*?)\s*(http://\S+/debian)/?(?:\s|$)", answer.stdout, re.MULTILINE)
    if match is None:
        raise DebianError(
            f"{BASE} names no Debian archive: {answer.stderr.strip()}\nSet the address of one: DEBIAN=ADDRESS."
        )
    return match[1]


def differences(recorded: Mapping[str, str], built: Mapping[str, str]) -> list[str]:
    """Return a description of each package that differs from the record, sorted by package name."""
    names = sorted(name for name in {*recorded, *built} if recorded.get(name) != built.get(name))
    return [f"{name} {built.get(name, 'missing')} (recorded: {recorded.get(name, 'none')})" for name in names]


def shortened(phrases: list[str]) -> list[str]:
    """Return the first `SHOWN` phrases, followed by the number of omitted phrases."""
    more = len(phrases) - SHOWN
    return [*phrases[:SHOWN], f"and {more} more"] if more > 0 else phrases


def complaint(image: Image, built: Mapping[str, str]) -> str:
    """Return a message if the image's packages differ from its record, otherwise an empty string."""
    record = read_record(image.debian)
    found = differences(record.packages, built)
    if not found:
        return ""
    listed = "".join(f"\n  {phrase}" for phrase in shortened(found))
    return (
        f"{image.repository} has other Debian packages than {image.debian.relative_to(ROOT)}:{listed}\n"
        f"`make images DEBIAN=ADDRESS`, with the address of Debian's archive at {record.moment}, builds it with the "
        "recorded packages; `make lock-debian` records today's."
    )


def gather(address: str, folder: Path = FOLDER) -> None:
    """Write apt's configuration for a build, with the archive at ``address`` or, if this is empty, the base image's.

    The build mounts the folder, so that no layer contains the configuration. Raises `DebianError`.
    """
    files = {"apt.conf": ""}
    if address:
        files = {"apt.conf": APT, "sources.list": sources(address), "preferences": PREFERENCES}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def sources(address: str) -> str:
    """Return apt's sources: the archive at ``address``, and the security archive next to it.

    For a dated archive, apt ignores the expiry of the index but still checks its signature. Raises `DebianError`.
    """
    match = ADDRESS.fullmatch(address.rstrip("/"))
    if match is None:
        raise DebianError(
            f"DEBIAN is {address!r}. It must be the address of an archive's folder `debian`, with `debian-security` "
            "beside it, such as http://mirror.example.org/debian or http://mirror.example.org/debian/20261121T000000Z, "
            "with http, because the base image has no certificates. apt checks the packages' signatures."
        )
    security = f"{match[1]}/debian-security{match[2] or ''}"
    options = "[check-valid-until=no] " if DATED.search(address) else ""
    suites = [(address, RELEASE), (address, f"{RELEASE}-updates"), (security, f"{RELEASE}-security")]
    return "".join(f"deb {options}{archive.rstrip('/')} {suite} main\n" for archive, suite in suites)
