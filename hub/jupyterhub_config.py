"""Configuration of the hub: what all deployments share, then the one that FARANDOLE_DEPLOYMENT names."""

import importlib
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spawner_config.form import options_form, options_from_form
from spawner_config.idle import IdleLimits, configure_idle
from spawner_config.profiles import ProfileError, read_catalogue
from spawner_config.roles import server_token_scopes
from spawner_config.settings import Settings, SettingsError, ending_at_a_bad_setting, ensure_state
from spawner_config.workers import stop_workers

deployment = os.environ.get("FARANDOLE_DEPLOYMENT", "local")
with ending_at_a_bad_setting(SettingsError, ProfileError):
    settings = Settings.from_environment(os.environ)
    # Kubernetes counts its GPUs itself.
    catalogue = read_catalogue(settings.profiles, os.environ.get("FARANDOLE_GPUS"), counted=deployment != "kubernetes")
ensure_state(settings)

c = get_config()  # noqa: F821 - JupyterHub defines it

c.JupyterHub.db_url = f"sqlite:///{settings.state}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(settings.state / "cookie_secret")
c.JupyterHub.allow_named_servers = True
# A request for a server is answered at once, and /progress tells how it goes.
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}

c.Spawner.server_token_scopes = server_token_scopes
c.Spawner.options_form = partial(options_form, catalogue)
c.Spawner.options_from_form = options_from_form
c.Spawner.default_url = "/lab"
c.Spawner.post_stop_hook = stop_workers
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 60

with ending_at_a_bad_setting(SettingsError, ProfileError):
    configure_idle(c, IdleLimits.from_environment(os.environ))
    importlib.import_module(f"spawner_config.{deployment}").configure(c, settings, catalogue)
