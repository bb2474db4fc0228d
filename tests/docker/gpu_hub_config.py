"""Configuration of a hub with stand-in GPUs. Its servers are so small that fifty of them can be started at once.

A server is a few lines of Perl, which Debian's base image contains. This is enough to test the hub.
"""

import os

from spawner_config.gpus.spawner import GpuSpawner, configure_gpus
from spawner_config.local import proxy_command
from spawner_config.profiles.options import OptionsHook
from spawner_config.profiles.profiles import parse_gpus, parse_profiles

SERVER = r"""
use IO::Socket::INET;
$SIG{TERM} = sub { exit 0 };
my $server = IO::Socket::INET->new(LocalPort => 8888, Listen => 50, ReuseAddr => 1) or die;
while (1) {
  my $client = $server->accept or next;
  while (<$client>) { last if /^\r?\n$/ }
  print $client "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
  close $client;
}
"""


def set_server(spawner, _profile):  # type: ignore[no-untyped-def]
    """Run the Perl server instead of a notebook server.

    Its environment asks for all GPUs, which the hub must override.
    """
    spawner.cmd = ["perl", "-e", SERVER]
    spawner.args = []
    spawner.environment = {"NVIDIA_VISIBLE_DEVICES": "all"}


c = get_config()  # type: ignore[name-defined]  # noqa: F821 - JupyterHub defines it
state = os.environ["FARANDOLE_STATE"]
profile_set = parse_profiles(
    {
        "profile": [
            {"name": "cpu", "description": "no GPU"},
            {"name": "gpu", "description": "one GPU", "gpus": 1, "gpu_class": "stand-in"},
        ]
    },
    parse_gpus(os.environ["FARANDOLE_GPUS"]),
)
pool = configure_gpus(c, profile_set, os.environ)
c.JupyterHub.spawner_class = type("GpuTestSpawner", (GpuSpawner,), {"gpu_pool": pool})
c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ['FARANDOLE_PORT']}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{os.environ['HUB_PORT']}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{os.environ['PROXY_PORT']}"
c.ConfigurableHTTPProxy.command = proxy_command()
c.ConfigurableHTTPProxy.pid_file = f"{state}/proxy.pid"
c.JupyterHub.db_url = f"sqlite:///{state}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = f"{state}/cookie_secret"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.allow_named_servers = True
c.JupyterHub.authenticator_class = "null"
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
c.JupyterHub.services = [{"name": "tests", "api_token": os.environ["HUB_TOKEN"]}]
c.JupyterHub.load_roles = [
    {"name": "tests", "scopes": ["admin:users", "admin:servers", "tokens"], "services": ["tests"]},
]
c.Spawner.poll_interval = 1
c.Spawner.start_timeout = 180
c.Spawner.apply_user_options = OptionsHook(profile_set, python="", environment={}, args=[], finish=set_server)
c.DockerSpawner.image = "debian:bookworm-slim"
c.DockerSpawner.pull_policy = "never"
c.DockerSpawner.prefix = os.environ["FARANDOLE_NAME"]
c.DockerSpawner.remove = True
c.DockerSpawner.use_internal_ip = True
