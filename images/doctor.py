"""Write the programs behind `make doctor` and `make backup` into one file each, for machines without a checkout."""

from __future__ import annotations

import shutil
import tempfile
import zipapp
from pathlib import Path

from images.names import ROOT

DOCTOR = ("hub/doctor", "spawner_config")
BACKUP = ("hub/backup", "hub/doctor", "hub/services/snapshots", "spawner_config")
"""The packages of each program."""
CHECK = """import os
import sys

if sys.version_info < (3, 11):
    sys.exit("Farandole needs Python 3.11 or newer: python3.11 " + sys.argv[0])

"""
START_DOCTOR = f"""{CHECK}from hub.doctor.__main__ import main

sys.exit(main(sys.argv[1:] or [os.path.dirname(sys.argv[0]) or "."]))
"""
"""The program's main module. Without an argument, the program checks the deployment in its own folder."""
START_BACKUP = f"""{CHECK}from hub.backup.__main__ import main

sys.exit(main(sys.argv[1:], os.environ))
"""


def write_doctor(path: Path) -> None:
    """Write the doctor's program to ``path`` and make it executable."""
    _write(path, DOCTOR, START_DOCTOR)


def write_backup(path: Path) -> None:
    """Write the program of backups to ``path`` and make it executable. It serves hubs in containers."""
    _write(path, BACKUP, START_BACKUP)


def _write(path: Path, packages: tuple[str, ...], start: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary)
        for package in packages:
            shutil.copytree(ROOT / package, staged / package, ignore=shutil.ignore_patterns("__pycache__", "templates"))
        (staged / "__main__.py").write_text(start, encoding="utf-8")
        zipapp.create_archive(staged, path, interpreter="/usr/bin/env python3", compressed=True)
    path.chmod(0o755)
