"""`python -m hub.host_routing COMMAND...`: run the proxy, with host-based routing unless all users share a host."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def proxy_arguments(command: list[str], environ: Mapping[str, str]) -> list[str]:
    """Return the command that starts the proxy; raises ValueError if FARANDOLE_ORIGINS is invalid."""
    origins = environ.get("FARANDOLE_ORIGINS") or "per-user"
    if origins not in {"per-user", "one"}:
        raise ValueError(f"FARANDOLE_ORIGINS is {origins!r}. It must be one of: per-user, one.")
    return command if origins == "one" else [*command, "--host-routing"]


if __name__ == "__main__":
    try:
        arguments = proxy_arguments(sys.argv[1:], os.environ)
    except ValueError as exc:
        sys.exit(f"The proxy does not start. {exc}")
    os.execvp(arguments[0], arguments)
