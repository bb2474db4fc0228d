"""Record anew which Debian packages the images hold: debian.txt beside each recipe.

Only the first stage of each is built, which installs them, from the archive that DEBIAN names or Debian's own.

    DEBIAN=http://deb.debian.org/debian python -m images.lock_debian
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

from images import debian
from images.build import BuildError, run_build
from images.engine import EngineError, check_engine
from images.names import HUB, NOTEBOOK, ROOT, Image

ARCHIVE = "http://deb.debian.org/debian"
SNAPSHOTS = "http://snapshot.debian.org/archive/debian"


def dated(address: str, now: datetime) -> str:
    """Return the address at which the archive can still be found as it is ``now`` (UTC)."""
    return address if debian.DATED.search(address) else f"{SNAPSHOTS}/{now:%Y%m%dT%H%M%SZ}"


def lock(image: Image, archive: str) -> None:
    """Write the record of ``image``; raises `BuildError` or `DebianError`."""
    # A layer that the engine kept may hold the packages of some weeks ago.
    built = run_build(["--no-cache", "--target", "base", "--file", str(image.dockerfile), str(ROOT)])
    try:
        record = debian.Record(archive=archive, packages=debian.installed(built))
    finally:
        subprocess.run(["docker", "rmi", built], check=True, capture_output=True)
    image.debian.write_text(record.text(), encoding="utf-8")
    print(f"{image.debian.relative_to(ROOT)}: {len(record.packages)} packages", flush=True)


def main() -> int:
    """Write both records."""
    address = os.environ.get("DEBIAN") or ARCHIVE
    archive = dated(address, datetime.now(UTC))
    try:
        check_engine()
        debian.gather(address)
        for image in (HUB, NOTEBOOK):
            lock(image, archive)
    except (BuildError, EngineError, debian.DebianError) as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
