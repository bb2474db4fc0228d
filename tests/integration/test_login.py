"""A machine outside the hub logs in with a token, and leads a cluster there."""

import os
import subprocess
import sys

import pytest
from farandole.cli.check import PERMISSIONS

LEAD = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "farandole")
shell.run_line_magic("cluster", f"start --hub {sys.argv[1]} --workers 2 --name away --backend none")
shell.run_cell_magic("distributed", "", "import farandole as fd\\nprint('rank', fd.rank(), 'of', fd.size())")
shell.run_line_magic("cluster", "stop")
"""


@pytest.fixture
def laptop(tmp_path):
    """Return a function that runs Python with arguments and input, without the variables of a hub."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTERHUB_", "FARANDOLE_"))}
    environment = own | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "FARANDOLE_RUNS": str(tmp_path / "runs")}

    def run(*arguments, said=""):
        command = [sys.executable, *arguments]
        options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 180}
        return subprocess.run(command, input=said, check=False, **options)

    return run


def test_a_laptop_logs_in_leads_a_cluster_and_logs_out(hub, laptop):
    command = "-m", "farandole.cli"
    token = hub.token_for("lovelace", PERMISSIONS.split())
    done = laptop(*command, "login", f"{hub.url}/hub/home", said=f"{token}\n")
    assert done.stdout == f"Logged in at {hub.url} as lovelace. In a notebook: %cluster start --hub {hub.url}\n", done
    assert laptop(*command, "status").stdout == f"{hub.url}  lovelace  the token is valid\n"
    done = laptop("-c", LEAD, hub.url)
    assert "rank 0 of 2" in done.stdout, done
    assert "rank 1 of 2" in done.stdout
    assert token not in done.stdout + done.stderr
    assert laptop(*command, "logout").stdout.startswith(f"Logged out at {hub.url}.")
    done = laptop("-c", LEAD, hub.url)
    assert f"there is no token for the hub {hub.url}; run `farandole login {hub.url}`" in done.stdout + done.stderr


def test_a_token_without_the_scopes_is_not_kept(hub, laptop):
    token = hub.token_for("lovelace", ["read:users!user"])
    done = laptop("-m", "farandole.cli", "login", hub.url, said=token)
    assert done.returncode == 1
    assert "the token lacks the scopes access:servers, servers, so it cannot start workers" in done.stderr
    assert laptop("-m", "farandole.cli", "status").stdout.startswith("There is no login.")
