"""Defines environment variables for the processes that tests start."""

from __future__ import annotations

import re

VARIABLES = {
    # With the default cycle time of 1 ms, an idle Horovod rank uses a tenth of a core.
    "HOROVOD_CYCLE_TIME": "5",
    # Allocate memory in huge pages. In some virtual machines, a page fault takes 25 µs or more. Importing torch there
    # causes 40,000 page faults and takes 10 to 24 s, compared to 6,000 page faults and 4 s with huge pages.
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=2",
}


def with_variables(profiles: str) -> str:
    """Add `VARIABLES` to all profiles of a hub that do not set environment variables."""
    variables = ", ".join(f'{name} = "{value}"' for name, value in VARIABLES.items())
    changed, count = re.subn(
        r"(?m)^\[\[profile\]\]\n(?!(?:.+\n)*environment)", f"[[profile]]\nenvironment = {{ {variables} }}\n", profiles
    )
    assert count, "no profile without environment variables"
    return changed
