"""The pattern for names in a URL's path. It excludes encoded characters and the segment '..'."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
