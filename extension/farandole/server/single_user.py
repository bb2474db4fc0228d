"""Starts a notebook server with ``python -m farandole.server.single_user``, faster than ``jupyterhub-singleuser``."""

from __future__ import annotations

import sys


def skip_slow_import() -> None:
    """Make jsonschema skip an optional module, which takes two seconds to compile a grammar of addresses.

    Only schemas with internationalized addresses use this grammar, and Jupyter has no such schemas.
    """
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]


def main() -> None:
    """Run the hub's single-user server."""
    skip_slow_import()
    from jupyterhub.singleuser import main as run

    run()


if __name__ == "__main__":
    main()
