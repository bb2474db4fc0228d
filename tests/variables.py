"""Environment variables for the processes that tests start."""

from __future__ import annotations

import re

VARIABLES = {
    # With the default cycle time of 1 ms, an idle Horovod rank uses a tenth of a core.
    "HOROVOD_CYCLE_TIME": "5",
    # Allocate memory in huge pages, because a page fault takes 25 µs or more in some virtual machines. There, importing
    # torch takes 10 to 24 s, with 40,000 page faults. With huge pages, it takes 4 s, with 6,000 page faults.
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=2",
}


def with_variables(profiles: str) -> str:
    """Add `VARIABLES` to the profiles of a hub, except to profiles that set environment variables themselves."""
    variables = ", ".join(f'{name} = "{value}"' for name, value in VARIABLES.items())
    changed, count = re.subn(
        r"(?m)^\[\[profile\]\]\n(?!(?:.+\n)*environment)", f"[[profile]]\nenvironment = {{ {variables} }}\n", profiles
    )
    assert count, "no profile without environment variables"
    return changed
