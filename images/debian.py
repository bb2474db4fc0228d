"""The archive from which a build installs Debian packages, and the record of the expected packages.

Python packages are pinned by version, but Debian's are only recorded: Debian's archive removes a version when a fix
arrives, and a pin would then break the build or prevent the fix. DEBIAN names an archive that still has the recorded
versions.
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
"""The number of differing packages that a build prints."""
DATED = re.compile(r"/(\d{8}T\d{6}Z)(/|$)")
MOMENT = re.compile(r"# (\d{8}T\d{6}Z)")
BASE = "debian:bookworm-slim"
# Above 1000, so that newer packages of the base image are downgraded to the versions of the archive.
PREFERENCES = "Package: *\nPin: release o=Debian\nPin-Priority: 1001\n"
APT = """Dir::Etc::sourcelist "/mnt/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "/mnt/preferences";
"""


class DebianError(StepError):
    """Raised when DEBIAN or a record cannot be used; says what it should be."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The record of one image: versions by name, and a moment (UTC) at which Debian's archive had them all."""

    moment: str
    packages: Mapping[str, str]

    def text(self) -> str:
        """Return the content of the record's file."""
        lines = [f"{name}={version}" for name, version in sorted(self.packages.items())]
        return "\n".join(["# Written by `make lock-debian`; Debian's archive of:", f"# {self.moment}", *lines, ""])


def read_record(path: Path) -> Record:
    """Read a record; raises `DebianError`."""
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
            "Does `docker run` work here? Then build again: finished layers are kept."
        )
    return dict(line.split("=", 1) for line in answer.stdout.splitlines())


def own_archive() -> str:
    """Return the address of the archive in the base image's configuration; raises `DebianError`."""
    command = ["docker", "run", "--rm", "--network=none", BASE, "cat", "/etc/apt/sources.list"]
    command += ["/etc/apt/sources.list.d/debian.sources"]
    # One of the two files exists.
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    match = re.search(r"^(?:URIs:|deb .*?)\s*(http://\S+/debian)/?(?:\s|$)", answer.stdout, re.MULTILINE)
    if match is None:
        raise DebianError(
            f"{BASE} names no archive of Debian: {answer.stderr.strip()}\nGive its address: DEBIAN=ADDRESS."
        )
    return match[1]


def differences(recorded: Mapping[str, str], built: Mapping[str, str]) -> list[str]:
    """Return a phrase for each package that differs from the record, sorted by name."""
    names = sorted(name for name in {*recorded, *built} if recorded.get(name) != built.get(name))
    return [f"{name} {built.get(name, 'missing')} (recorded: {recorded.get(name, 'none')})" for name in names]


def shortened(phrases: list[str]) -> list[str]:
    """Return the first `SHOWN` phrases, and the number of the others."""
    more = len(phrases) - SHOWN
    return [*phrases[:SHOWN], f"and {more} more"] if more > 0 else phrases


def complaint(image: Image, built: Mapping[str, str]) -> str:
    """Return the message for an image whose packages differ from its record, else an empty string."""
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
    """Write the configuration of apt for a build: the archive at ``address``, or nothing for the base image's own.

    A build mounts the folder, so that it is in no layer. Raises `DebianError`.
    """
    files = {"apt.conf": ""}
    if address:
        files = {"apt.conf": APT, "sources.list": sources(address), "preferences": PREFERENCES}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def sources(address: str) -> str:
    """Return apt's sources: the archive at ``address``, and the security archive beside it.

    Raises `DebianError`. The index of a dated archive has expired, but its signature is still valid.
    """
    match = ADDRESS.fullmatch(address.rstrip("/"))
    if match is None:
        raise DebianError(
            f"DEBIAN is {address!r}. It must be the address of an archive's folder `debian`, with `debian-security` "
            "beside it, such as http://mirror.example.org/debian or http://mirror.example.org/debian/20261121T000000Z, "
            "with http, since the base image has no certificates and apt checks signatures."
        )
    security = f"{match[1]}/debian-security{match[2] or ''}"
    options = "[check-valid-until=no] " if DATED.search(address) else ""
    suites = [(address, RELEASE), (address, f"{RELEASE}-updates"), (security, f"{RELEASE}-security")]
    return "".join(f"deb {options}{archive.rstrip('/')} {suite} main\n" for archive, suite in suites)
