"""`python hub/start.py -f CONFIG`: run the hub; takes the same arguments as the command `jupyterhub`."""

import sys
from pathlib import Path


def main() -> None:
    """Run the hub until it is stopped."""
    # Replace this folder in sys.path by its parent, so that its modules are imported as modules of the package `hub`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    # Make jsonschema skip this optional module, which compiles a grammar for two seconds. The hub never needs it.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    from spawner_config.origins.application import FarandoleHub

    FarandoleHub.launch_instance()


if __name__ == "__main__":
    main()
