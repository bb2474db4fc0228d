"""Write a version of a data set into one file, for a hub on another machine.

To use the file on the new machine, run ``./load imagenet@2.tar`` in the folder of a bundle.

    python -m images.data.bundle imagenet@2
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from farandole.datasets.versions.manifest import verify
from farandole.datasets.versions.names import DataVersion, parse_version
from farandole.exceptions import FarandoleError

from images.engine import StepError, check_docker
from images.names import NOTEBOOK, ROOT, registry_prefix, size_text
from images.publish import local_tag

STATE = ROOT / ".farandole"
"""The state of a hub without containers, unless FARANDOLE_STATE names another folder."""


class DataBundleError(StepError):
    """Raised when a version of a data set cannot be written into a file."""


def local_versions() -> Path:
    """Return the folder of a hub without containers that has its data sets."""
    return Path(os.environ.get("FARANDOLE_STATE") or STATE).expanduser() / "datasets"


def write_data(version: DataVersion, folder: Path) -> Path:
    """Write a version into a tar file in ``folder`` and return its path; after an error there is no incomplete file.

    The version is that of a hub without containers on this machine, or else in the volume of the Docker engine. All its
    files are verified first. Raises `DataBundleError`.
    """
    path = folder / f"{version}.tar"
    if path.exists():
        raise DataBundleError(f"{path} exists already. Delete it to write it again.")
    here = local_versions() / version.name / str(version.number)
    try:
        if here.is_dir():
            verify(here)
            command = ["tar", "-C", str(here)]
        else:
            command = _in_volume(version)
        folder.mkdir(parents=True, exist_ok=True)
        _write([*command, "-cf", "-", "."], path)
    except (FarandoleError, OSError) as exc:
        raise DataBundleError(f"{version} was not written: {exc}") from exc
    return path


def _in_volume(version: DataVersion) -> list[str]:
    """Verify the version in its volume, and return the beginning of a command of tar there."""
    check_docker()
    volume = version.volume
    if subprocess.run(["docker", "volume", "inspect", volume], check=False, capture_output=True).returncode:
        raise DataBundleError(
            f"There is no volume {volume!r} for {version} on this engine, and no hub without containers here has "
            f"{version}. `docker volume ls` shows the volumes, and FARANDOLE_STATE names the state of such a hub."
        )
    mount = ["docker", "run", "--rm", "--user=0", "--network=none", f"--volume={volume}:/data:ro"]
    image = local_tag(NOTEBOOK, registry_prefix())
    checked = [*mount, "--entrypoint=python", image, "-m", "farandole.datasets.versions", "verify", "/data"]
    if subprocess.run(checked, check=False, stdout=subprocess.DEVNULL).returncode:
        raise DataBundleError(f"{version} was not written; the reason is above.")
    return [*mount, "--entrypoint=tar", image, "-C", "/data"]


def _write(command: list[str], path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            failed = subprocess.run(command, check=False, stdout=file).returncode
        if failed:
            raise DataBundleError(f"{path} was not written; the reason is above. `df -h` shows the free space.")
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


def main(text: str) -> None:
    """Write the version into dist/ and print how to use it."""
    try:
        version = parse_version(text)
    except FarandoleError as exc:
        raise DataBundleError(f"DATA is {text!r}: {exc}.") from exc
    path = write_data(version, ROOT / "dist")
    print(f"{path.relative_to(ROOT)}  {size_text(path.stat().st_size)}\nOn the new machine: ./load {path.name}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except StepError as exc:
        sys.exit(str(exc))
