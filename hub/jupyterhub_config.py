"""The configuration of the hub: first for all deployments, then for the one that FARANDOLE_DEPLOYMENT selects."""

import importlib
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spawner_config.access import endpoint_access, worker_tokens
from spawner_config.form import options_form, options_from_form
from spawner_config.lifecycle.cascade_stop import stop_workers
from spawner_config.lifecycle.idle import IdleLimits, configure_idle
from spawner_config.limits.bodies import limit_bodies
from spawner_config.limits.codes import limit_codes
from spawner_config.limits.servers import NamedServerLimit
from spawner_config.limits.tokens import TokenLimit, scopes_of_server
from spawner_config.pages import add_templates
from spawner_config.profiles.profiles import read_profiles
from spawner_config.quotas.configure import configure_quotas
from spawner_config.quotas.reserve import reserve_database
from spawner_config.settings import Settings, SettingsError, ensure_state, exit_on_bad_settings

DEPLOYMENTS = {
    "local": "spawner_config.local",
    "docker": "spawner_config.containers.spawner",
    "swarm": "spawner_config.swarm.spawner",
    "kubernetes": "spawner_config.kubernetes.configure",
}

deployment = os.environ.get("FARANDOLE_DEPLOYMENT", "local")
with exit_on_bad_settings():
    if deployment not in DEPLOYMENTS:
        raise SettingsError(f"FARANDOLE_DEPLOYMENT is {deployment!r}. Set it to one of: {', '.join(DEPLOYMENTS)}.")
    settings = Settings.from_environment(os.environ)
    # On Kubernetes the hub does not count the GPUs, because the scheduler does.
    profile_set = read_profiles(settings.profiles, os.environ.get("FARANDOLE_GPUS"), counted=deployment != "kubernetes")
ensure_state(settings)

c = get_config()  # noqa: F821 - JupyterHub defines it

c.JupyterHub.db_url = f"sqlite:///{settings.state}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(settings.state / "cookie_secret")
c.JupyterHub.allow_named_servers = True
c.JupyterHub.named_server_limit_per_user = NamedServerLimit(profile_set.limits)
limit_bodies()
limit_codes()
TokenLimit(profile_set.limits).enforce()
endpoint_access.end_tokens_with_endpoints()
c.JupyterHub.extra_handlers = [*worker_tokens.HANDLERS, *endpoint_access.HANDLERS]
add_templates(c)
c.JupyterHub.tornado_settings = {
    # A request to start a server returns immediately; /progress streams the events of the start.
    "slow_spawn_timeout": 0,
    # While 100 servers are starting, the hub asks clients to retry further requests after this many seconds.
    # JupyterHub's default of 30 to 60 seconds would dominate the start of a cluster with several hundred workers, and
    # JupyterHub has no traitlet for this setting.
    "spawn_throttle_retry_range": (2, 8),
}

c.Spawner.server_token_scopes = scopes_of_server
c.Spawner.options_form = partial(options_form, profile_set)
c.Spawner.options_from_form = options_from_form
c.Spawner.default_url = "/lab"
c.Spawner.post_stop_hook = stop_workers
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 60

with exit_on_bad_settings():
    configure_idle(c, IdleLimits.from_environment(os.environ))
    importlib.import_module(DEPLOYMENTS[deployment]).configure(c, settings, profile_set)
    configure_quotas(c, settings, claims=deployment == "kubernetes")
reserve_database(c.JupyterHub.db_url)
