"""Changes settings in `.env`."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from hub.doctor.deployment import SETTING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """Return the text of an `.env` with other values; settings that it does not have are added at its end."""
    lines = text.splitlines()
    for key, value in settings.items():
        matches = [SETTING.match(line.strip()) for line in lines]
        found = [number for number, match in enumerate(matches) if match and match[1] == key]
        # Compose uses the last of several lines.
        if found:
            lines[found[-1]] = f"{key}={value}"
        else:
            lines.append(f"{key}={value}")
    return "\n".join(lines) + "\n"


def replace_text(path: Path, text: str) -> None:
    """Replace the text of a file in one step; mode and owner stay the same."""
    target = path.resolve()
    part = target.with_name(f"{target.name}.part")
    part.touch(mode=0o600)
    part.write_text(text, encoding="utf-8")
    shutil.copymode(target, part)
    status = target.stat()
    os.chown(part, status.st_uid, status.st_gid)
    part.replace(target)
