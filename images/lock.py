"""Pin all Python packages of the images: resolve each requirements*.in and write a requirements*.txt next to it.

pip resolves the packages for the images' Python, regardless of the Python that runs this module. Local version suffixes
such as +cpu are removed, so that the same file works with any index. The CUDA variant also pins the dependencies of the
CUDA build of torch.

    python -m images.lock
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from images.names import HUB, NOTEBOOK, NOTEBOOK_CUDA, ROOT, SERVING, SERVING_TORCH, Image
from images.wheels import PIP, target

# These packages are released without a wheel, but pip needs wheels to resolve packages for another Python.
SOURCE_ONLY = ("nkeys==0.2.1", "onetimepass==1.0.1")
# KServe excludes the versions of these packages that pyproject.toml pins for notebooks and workers.
KSERVE_EXCLUDES = ("pandas", "psutil")
EXTRAS = re.compile(r"\[[^]]*\]")


def constraints(image: Image) -> str:
    """Return the requirements that pyproject.toml sets for the packages of ``image``, one per line.

    pip allows no extras in constraints, so they are removed.
    """
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    if image.name != SERVING.name:
        return "\n".join(groups["run"])
    pins = [line for line in groups["run"] if line.partition("==")[0] not in KSERVE_EXCLUDES]
    return "\n".join([*pins, *(EXTRAS.sub("", line) for line in groups["serving"])])


def resolve(requirements: Path, limiting: str, *, environment: dict[str, str]) -> list[str]:
    """Return a pin for each package in the dependency tree of ``requirements``, sorted by name.

    ``limiting`` is the content of a file of pip constraints.
    """
    with tempfile.TemporaryDirectory(prefix="farandole-lock-") as folder:
        limits, report = Path(folder) / "constraints.txt", Path(folder) / "report.json"
        limits.write_text(limiting, encoding="utf-8")
        subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, *SOURCE_ONLY], check=True)
        pip = [*PIP, "install", "--dry-run", "--ignore-installed", "--target", folder, "--only-binary=:all:", *target()]
        pip += ["--find-links", folder, "--report", str(report), "-c", str(limits), "-r", str(requirements)]
        subprocess.run(pip, check=True, env={**os.environ, **environment})
        installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    return sorted(pin(each["metadata"]["name"], each["metadata"]["version"]) for each in installs)


def pin(name: str, version: str) -> str:
    """Return the line of requirements.txt that pins a package, without a local version suffix."""
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version.partition('+')[0]}"


def write(image: Image, intent: str = "requirements.in", *, environment: dict[str, str] | None = None) -> None:
    """Resolve the packages that the file ``intent`` of ``image`` names, and write the image's pins."""
    requirements = image.requirements.with_name(intent)
    pins = resolve(requirements, constraints(image), environment=environment or {})
    header = f"# Written by `make lock`; the intent is in {intent}."
    image.requirements.write_text("\n".join([header, *pins, ""]), encoding="utf-8")
    print(f"{image.requirements.relative_to(ROOT)}: {len(pins)} packages")


def main() -> int:
    """Write the pinned packages of all images."""
    write(HUB)
    write(NOTEBOOK)
    # Ignore this machine's pip configuration, which may prefer a CPU build of torch.
    write(NOTEBOOK_CUDA, environment={"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""})
    write(SERVING)
    write(SERVING_TORCH, "requirements-torch.in")
    return 0


if __name__ == "__main__":
    sys.exit(main())
