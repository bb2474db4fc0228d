"""The pattern of names that are inserted into a URL's path; it matches no encoded characters and no segment '..'."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
