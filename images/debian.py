"""The Debian packages of the images: the archive that a build takes them from, and the record of what it should find.

Python packages are pinned by version. Debian's are recorded only: its archive drops a version when a fix comes, and a
pin would then break the build or keep the fix out. DEBIAN names an archive that still has the recorded ones.
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
"""How many differing packages a build names."""
DATED = re.compile(r"/(\d{8}T\d{6}Z)(/|$)")
MOMENT = re.compile(r"# (\d{8}T\d{6}Z)")
BASE = "debian:bookworm-slim"
# Above 1000, so that a package of the base image that is newer than the archive's is replaced as well.
PREFERENCES = "Package: *\nPin: release o=Debian\nPin-Priority: 1001\n"
APT = """Dir::Etc::sourcelist "/mnt/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "/mnt/preferences";
"""


class DebianError(StepError):
    """Raised when DEBIAN or a record cannot be used; says what it should be."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one image should hold: versions by name, and the moment (UTC) at which Debian's archive had them all."""

    moment: str
    packages: Mapping[str, str]

    def text(self) -> str:
        """Return it as a file."""
        lines = [f"{name}={version}" for name, version in sorted(self.packages.items())]
        return "\n".join(["# Written by `make lock-debian`; Debian's archive of:", f"# {self.moment}", *lines, ""])


def read_record(path: Path) -> Record:
    """Read a record; raises `DebianError`."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    moments = [match[1] for line in lines if (match := MOMENT.fullmatch(line))]
    packages = dict(line.split("=", 1) for line in lines if not line.startswith("#") and "=" in line)
    if not moments or not packages:
        raise DebianError(f"{path} is no record of an image's Debian packages. Run `make lock-debian`.")
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
    """Return the address of the archive that the base image itself names; raises `DebianError`."""
    command = ["docker", "run", "--rm", "--network=none", BASE, "cat", "/etc/apt/sources.list"]
    command += ["/etc/apt/sources.list.d/debian.sources"]
    # One of the two is there.
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    match = re.search(r"^(?:URIs:|deb .*?)\s*(http://\S+/debian)/?(?:\s|$)", answer.stdout, re.MULTILINE)
    if match is None:
        raise DebianError(
            f"{BASE} names no archive of Debian: {answer.stderr.strip()}\nGive its address: DEBIAN=ADDRESS."
        )
    return match[1]


def differences(recorded: Mapping[str, str], built: Mapping[str, str]) -> list[str]:
    """Return one phrase for each package that is not as recorded, sorted by name."""
    names = sorted(name for name in {*recorded, *built} if recorded.get(name) != built.get(name))
    return [f"{name} {built.get(name, 'missing')} (recorded: {recorded.get(name, 'none')})" for name in names]


def shortened(phrases: list[str]) -> list[str]:
    """Return the first `SHOWN` phrases, and how many there are beyond them."""
    more = len(phrases) - SHOWN
    return [*phrases[:SHOWN], f"and {more} more"] if more > 0 else phrases


def complaint(image: Image, built: Mapping[str, str]) -> str:
    """Return what to say of an image whose packages are not the recorded ones, and nothing of any other."""
    record = read_record(image.debian)
    found = differences(record.packages, built)
    if not found:
        return ""
    listed = "".join(f"\n  {phrase}" for phrase in shortened(found))
    return (
        f"{image.repository} has other Debian packages than {image.debian.relative_to(ROOT)}:{listed}\n"
        f"`make images DEBIAN=ADDRESS`, the address of Debian's archive as it was at {record.moment}, builds it with "
        "the recorded ones; `make lock-debian` records today's."
    )


def gather(address: str, folder: Path = FOLDER) -> None:
    """Write what apt reads in a build: nothing, for the base image's own sources, or the archive at ``address``.

    A build sees the folder and no layer keeps it. Raises `DebianError`.
    """
    files = {"apt.conf": ""}
    if address:
        files = {"apt.conf": APT, "sources.list": sources(address), "preferences": PREFERENCES}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def sources(address: str) -> str:
    """Return apt's sources for the archive at ``address`` and for the security archive beside it.

    Raises `DebianError`. What a dated archive says of itself has expired, and is signed all the same.
    """
    match = ADDRESS.fullmatch(address.rstrip("/"))
    if match is None:
        raise DebianError(
            f"DEBIAN is {address!r}. It takes the address of an archive's folder `debian`, which has `debian-security` "
            "beside it, such as http://mirror.example.org/debian or http://mirror.example.org/debian/20261121T000000Z; "
            "with http, since the base image has no certificates and apt checks signatures."
        )
    security = f"{match[1]}/debian-security{match[2] or ''}"
    options = "[check-valid-until=no] " if DATED.search(address) else ""
    suites = [(address, RELEASE), (address, f"{RELEASE}-updates"), (security, f"{RELEASE}-security")]
    return "".join(f"deb {options}{archive.rstrip('/')} {suite} main\n" for archive, suite in suites)
