"""Record the Debian packages of each image in a file debian.txt next to its Dockerfile.

This builds only the first stage of each image, which installs the packages from the archive that the variable DEBIAN
names, or from the base image's archive.

    python -m images.lock_debian
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

from images import debian
from images.build import run_build
from images.engine import run_step
from images.names import HUB, NOTEBOOK, ROOT, SERVING, Image


def moment_of(address: str, now: datetime) -> str:
    """Return the UTC time of the archive's state: the time in a dated archive's address, otherwise ``now``."""
    match = debian.DATED.search(address)
    return match[1] if match else f"{now:%Y%m%dT%H%M%SZ}"


def lock(image: Image, moment: str) -> None:
    """Write the record of ``image``; raises `BuildError` or `DebianError`."""
    # Build without the cache, because a cached layer may contain old packages.
    built = run_build(["--no-cache", "--target", "base", "--file", str(image.dockerfile), str(ROOT)])
    try:
        record = debian.Record(moment=moment, packages=debian.installed(built))
    finally:
        subprocess.run(["docker", "rmi", built], check=True, capture_output=True)
    image.debian.write_text(record.text(), encoding="utf-8")
    print(f"{image.debian.relative_to(ROOT)}: {len(record.packages)} packages", flush=True)


def main() -> None:
    """Write the records of all images."""
    address = os.environ.get("DEBIAN") or debian.own_archive()
    moment = moment_of(address, datetime.now(UTC))
    debian.gather(address)
    for image in (HUB, NOTEBOOK, SERVING):
        lock(image, moment)


if __name__ == "__main__":
    sys.exit(run_step(main))
