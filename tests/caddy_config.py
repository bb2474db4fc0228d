"""Configuration of a hub that runs directly on one machine, but has accounts and Caddy like a hub in containers."""

import os
from pathlib import Path

from spawner_config.origins.certificates import admit_certificates
from spawner_config.origins.configure import configure_origins
from spawner_config.settings import Settings

load_subconfig(str(Path(__file__).with_name("integration") / "accounts_config.py"))  # noqa: F821 - JupyterHub defines it

c = get_config()  # noqa: F821 - and this

settings = Settings.from_environment(os.environ)
configure_origins(c, settings, https=True, port=int(os.environ["FARANDOLE_PUBLIC_PORT"]))
admit_certificates(c, settings)
c.JupyterHub.tornado_settings["cookie_options"] = {"secure": True}
c.AccountAuthenticator.tls_servers = ["localhost"]
c.AccountAuthenticator.signups_per_address = 1
