"""Copy a version of a data set to this machine from another hub or from a folder: only files that are missing here.

A mirror that was interrupted continues where it ended. All files are verified, and nothing that exists is replaced.

    python -m images.data.mirror imagenet@2 https://hub.example.org/user/ada/lab
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.datasets.versions.manifest import MANIFEST
from farandole.datasets.versions.mirror import mirror
from farandole.datasets.versions.names import DataVersion, parse_version
from farandole.datasets.versions.sources import TOKEN, open_source
from farandole.exceptions import FarandoleError

from images.data.bundle import local_versions
from images.engine import StepError, check_docker
from images.names import NOTEBOOK, registry_prefix
from images.publish import local_tag

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER, VOLUME = "folder", "volume"


class DataMirrorError(StepError):
    """Raised when a version of a data set cannot be mirrored."""


def to_folder(version: DataVersion, source: str) -> str:
    """Mirror a version for a hub without containers, and return its digest. Raises `FarandoleError` and `OSError`."""
    data_set = local_versions() / version.name
    folder = data_set / str(version.number)
    # The hub treats a folder with the number as published, so the mirror renames its folder when it is complete.
    part = folder if folder.exists() else data_set / f".mirror-{version.number}"
    part.mkdir(parents=True, exist_ok=True)
    done = mirror(open_source(source, version), part, others=_versions_in(data_set))
    if part != folder:
        part.rename(folder)
    print(f"{done.copied} of {done.files} files were copied to {folder}; the others were there")
    return done.digest


def _versions_in(data_set: Path) -> list[Path]:
    return [manifest.parent for manifest in sorted(data_set.glob(f"[0-9]*/{MANIFEST}"))]


def to_volume(version: DataVersion, source: str) -> str:
    """Mirror a version to its volume of the Docker engine, and return its digest. Raises `DataMirrorError`."""
    check_docker()
    place = [f"--volume={version.volume}:/data", f"--env={TOKEN}"]
    if "://" not in source:
        folder = Path(source).expanduser().resolve()
        place += ["--network=none", f"--mount=type=bind,source={folder},target=/from,readonly"]
        source = "/from"
    image = local_tag(NOTEBOOK, registry_prefix())
    command = ["docker", "run", "--rm", "--user=0", *place, "--entrypoint=python", image]
    words = ["-m", "farandole.datasets.versions", "mirror", source, str(version), "/data"]
    done = subprocess.run([*command, *words], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise DataMirrorError(
            f"{version} is not complete; the reason is above. Run this again to continue; complete files are kept."
        )
    return done.stdout.strip()


TARGETS: dict[str, Callable[[DataVersion, str], str]] = {FOLDER: to_folder, VOLUME: to_volume}


def target() -> str:
    """Return where versions are: in a folder of a hub without containers if this checkout has one, else in volumes."""
    return FOLDER if local_versions().parent.is_dir() else VOLUME


def main(text: str, source: str, to: str = "") -> None:
    """Mirror a version and print how to use it."""
    if to and to not in TARGETS:
        raise DataMirrorError(f"TO is {to!r}. It must be {FOLDER} (a hub without containers) or {VOLUME}.")
    if not source:
        raise DataMirrorError(
            "FROM is empty. It must be the address of a notebook server of another hub that has the version, such as "
            "https://hub.example.org/user/ada/lab, or a folder."
        )
    try:
        version = parse_version(text)
        digest = TARGETS[to or target()](version, source)
    except (FarandoleError, OSError) as exc:
        raise DataMirrorError(f"{text or 'DATA'} is not mirrored: {exc}") from exc
    print(f"{version} is here: {digest}\nAdd {version}:/data/{version.name} to FARANDOLE_SHARED_VOLUMES.")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], os.environ.get("TO", ""))
    except StepError as exc:
        sys.exit(str(exc))
