"""Configuration of a hub that runs directly on one machine, but has user accounts like a hub in containers."""

from pathlib import Path

from spawner_config.access.logins import configure_logins

load_subconfig(str(Path(__file__).parents[2] / "hub" / "jupyterhub_config.py"))  # noqa: F821 - JupyterHub defines it

c = get_config()  # noqa: F821 - and this

configure_logins(
    c,
    {
        "FARANDOLE_ADMIN": "root",
        "FARANDOLE_ADMIN_PASSWORD": "a password for tests",
        "FARANDOLE_SIGNUP": "open",
    },
)
