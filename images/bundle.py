"""Write a bundle for a machine without internet: images, compose file, settings, notebooks and programs.

To use the file on the new machine, run ``tar xf farandole-VERSION.tar && farandole-VERSION/load``.

    python -m images.bundle
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from images.doctor import write_backup, write_doctor
from images.engine import is_built, run_step
from images.names import IMAGES, ROOT, Image, registry_prefix, size_text, version
from images.publish import PublishError, built_images, local_tag

FILES = ("docker-compose.yml", ".env.example")
NOT_WRITTEN = (
    "No bundle was written. It takes about 1.5 GiB, and the same again during the build; with the image for GPUs four "
    "times as much. `df -h dist /var/lib/docker` shows the free space."
)


def write_bundle(folder: Path) -> Path:
    """Write the bundle into ``folder`` and return its path; after an error there is no incomplete bundle.

    Raises `PublishError` if an image is missing or the disk is full.
    """
    tags = [saved_tag(image) for image in built_images()]
    try:
        return write(tags, folder)
    except OSError as exc:
        raise PublishError(f"{exc}\n{NOT_WRITTEN}") from exc


def write(tags: list[str], folder: Path) -> Path:
    """Write the bundle with these images into a temporary folder in ``folder``, and then move it to its final path."""
    name = f"farandole-{version()}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
        content = Path(temporary) / name
        content.mkdir()
        for file in (*(ROOT / each for each in FILES), IMAGES / "load"):
            shutil.copy(file, content)
        write_doctor(content / "doctor")
        write_backup(content / "backup")
        shutil.copytree(ROOT / "notebooks", content / "notebooks", ignore=shutil.ignore_patterns(".*"))
        save(tags, content / "images.tar.gz")
        part = Path(temporary) / f"{name}.tar"
        with tarfile.open(part, "w") as archive:
            archive.add(content, name)
        return part.rename(folder / part.name)


def saved_tag(image: Image) -> str:
    """Tag the image with the name that it has on the new machine, which uses no registry, and return that name."""
    source, tag = local_tag(image, registry_prefix()), image.tag(version())
    if not is_built(tag):
        subprocess.run(["docker", "tag", source, tag], check=True)
    return tag


def save(tags: list[str], path: Path) -> None:
    """Write the images into one compressed file; higher compression levels would hardly make the layers smaller."""
    with path.open("wb") as file, subprocess.Popen(["docker", "save", *tags], stdout=subprocess.PIPE) as saving:
        packed = subprocess.run(["gzip", "-1"], check=False, stdin=saving.stdout, stdout=file).returncode
    if packed or saving.returncode:
        raise PublishError(f"The images could not be written; the reason is above.\n{NOT_WRITTEN}")


def main() -> None:
    """Write the bundle into dist/ and print how to use it."""
    path = write_bundle(ROOT / "dist")
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}  {size_text(size)}\nOn the new machine: tar xf {path.name} && {path.stem}/load")


if __name__ == "__main__":
    sys.exit(run_step(main))
