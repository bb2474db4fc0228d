"""The environment variables of the processes that tests start."""

from __future__ import annotations

import re

VARIABLES = {
    # With the default of 1 ms, a Horovod rank that does not rest uses a tenth of a core.
    "HOROVOD_CYCLE_TIME": "5",
    # Python gets its memory in huge pages. In some virtual machines a page fault takes 25 µs instead of less than 1 µs.
    # An import of torch has 40,000 of them and takes 10 to 24 s there; with huge pages it has 6,000 and takes 4 s.
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=2",
}


def with_variables(profiles: str) -> str:
    """Return a hub's profiles with `VARIABLES`. Profiles that already set variables are unchanged."""
    variables = ", ".join(f'{name} = "{value}"' for name, value in VARIABLES.items())
    changed, count = re.subn(
        r"(?m)^\[\[profile\]\]\n(?!(?:.+\n)*environment)", f"[[profile]]\nenvironment = {{ {variables} }}\n", profiles
    )
    assert count, "no profile without environment variables"
    return changed
