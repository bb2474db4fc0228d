"""The command of the short-lived container in which a hub copies a user's folder to the volume of a new version.

The hub chooses the number of the version. It does not know whether an existing volume has a complete version or what a
killed helper has left, so the exit status says it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.incomplete import occupant
from farandole.exceptions import FarandoleError, UsageError
from farandole.reading import reason

COMMAND = "publish"
PUBLISH = ("python", "-I", "-m", "farandole.datasets.versions", COMMAND)
"""The beginning of the command. With ``-I``, Python imports nothing from the home, which the helper mounts."""
EXISTS = 3
"""The exit status if the volume has a version or other files already."""
LONGEST = 2000
"""The bytes of a reason that are reported. JSON may double them, and Kubernetes keeps the last 4096 bytes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--result", type=Path, help="a file for the outcome, which is also printed")


def run(source: Path, target: Path, result: Path | None = None) -> int:
    """Copy a folder to a volume, print the outcome as a line of JSON, and return the exit status."""
    status, outcome = _publish(source, target)
    line = json.dumps(outcome, ensure_ascii=False).encode()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()
    if result is not None:
        result.write_bytes(line)
    return status


def _publish(source: Path, target: Path) -> tuple[int, dict[str, Any]]:
    try:
        if found := occupant(target):
            return EXISTS, _error(f"{target} has {found!r} already, and nothing is replaced")
        if (real := source.resolve()) != source:
            raise UsageError(f"{source} is a link to {real}; name the folder itself, which must be below the home")
        copied = copy_version(source, target)
    except FarandoleError as exc:
        # The user does not know the place of the volume in this container.
        return 1, _error(str(exc).replace(f" to {target}:", ":"))
    except OSError as exc:
        return 1, _error(f"the volume cannot be used: {reason(exc)}")
    return 0, {"files": copied.files, "bytes": copied.bytes, "digest": copied.digest}


def _error(text: str) -> dict[str, str]:
    return {"error": text.encode(errors="replace")[:LONGEST].decode(errors="ignore")}
