"""The command of the short-lived container in which a hub copies a user's folder to the volume of a new version.

The hub chooses the number of the version. It does not know whether an existing volume has a complete version or what a
killed helper has left, so the exit status says it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from farandole.datasets.versions.copy import clear, copy_version
from farandole.datasets.versions.manifest import MANIFEST
from farandole.exceptions import FarandoleError
from farandole.reading import reason

COMMAND = "publish"
PUBLISH = ("python", "-I", "-m", "farandole.datasets.versions", COMMAND)
"""The beginning of the command. With ``-I``, Python imports nothing from the home, which the helper mounts."""
EXISTS = 3
"""The exit status if the volume has a version already."""
LONGEST = 2000
"""The characters of a reason that are reported. Kubernetes keeps 4096 bytes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--result", type=Path, help="a file for the outcome, which is also printed")


def run(source: Path, target: Path, result: Path | None = None) -> int:
    """Copy a folder to a volume, print the outcome as a line of JSON, and return the exit status."""
    status, outcome = _publish(source, target)
    line = json.dumps(outcome)
    print(line, flush=True)
    if result is not None:
        result.write_text(line, encoding="ascii")
    return status


def _publish(source: Path, target: Path) -> tuple[int, dict[str, Any]]:
    if (target / MANIFEST).exists():
        return EXISTS, {"error": f"{target} has a version already, and a version is never replaced"}
    try:
        # A helper that was killed may have left files.
        clear(target)
        copied = copy_version(source, target)
    except FarandoleError as exc:
        # The user does not know the place of the volume in this container.
        return 1, {"error": str(exc).replace(f" to {target}:", ":")[:LONGEST]}
    except OSError as exc:
        return 1, {"error": f"the volume cannot be used: {reason(exc)}"[:LONGEST]}
    return 0, {"files": copied.files, "bytes": copied.bytes, "digest": copied.digest}
