"""Record the Debian packages of the images: debian.txt beside each recipe.

This builds only the first stage of each image, which installs the packages, from the archive of DEBIAN or the base
image's own.

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
from images.names import HUB, NOTEBOOK, ROOT, Image


def moment_of(address: str, now: datetime) -> str:
    """Return the moment of the archive: the one in a dated archive's address, else ``now`` (UTC)."""
    match = debian.DATED.search(address)
    return match[1] if match else f"{now:%Y%m%dT%H%M%SZ}"


def lock(image: Image, moment: str) -> None:
    """Write the record of ``image``; raises `BuildError` or `DebianError`."""
    # Build without the cache, because a cached layer may have packages that are several weeks old.
    built = run_build(["--no-cache", "--target", "base", "--file", str(image.dockerfile), str(ROOT)])
    try:
        record = debian.Record(moment=moment, packages=debian.installed(built))
    finally:
        subprocess.run(["docker", "rmi", built], check=True, capture_output=True)
    image.debian.write_text(record.text(), encoding="utf-8")
    print(f"{image.debian.relative_to(ROOT)}: {len(record.packages)} packages", flush=True)


def main() -> None:
    """Write both records."""
    address = os.environ.get("DEBIAN") or debian.own_archive()
    moment = moment_of(address, datetime.now(UTC))
    debian.gather(address)
    for image in (HUB, NOTEBOOK):
        lock(image, moment)


if __name__ == "__main__":
    sys.exit(run_step(main))
