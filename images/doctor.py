"""Write the program behind `make doctor` into one file, for machines that have Python but no checkout."""

from __future__ import annotations

import shutil
import tempfile
import zipapp
from pathlib import Path

from images.names import ROOT

PACKAGES = ("hub/doctor", "spawner_config")
START = """import os
import sys

if sys.version_info < (3, 11):
    sys.exit("Farandole needs Python 3.11 or newer: python3.11 " + sys.argv[0])

from hub.doctor.__main__ import main

sys.exit(main(sys.argv[1:] or [os.path.dirname(sys.argv[0]) or "."]))
"""
"""The program's main module. Without an argument, the program checks the deployment in its own folder."""


def write_doctor(path: Path) -> None:
    """Write the doctor's program to ``path`` and make it executable."""
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, staged / package, ignore=shutil.ignore_patterns("__pycache__", "templates"))
        (staged / "__main__.py").write_text(START, encoding="utf-8")
        zipapp.create_archive(staged, path, interpreter="/usr/bin/env python3", compressed=True)
    path.chmod(0o755)
