"""The hub with the PostgreSQL service of docker-compose.yml, except that the image is built from Debian's packages."""

from __future__ import annotations

import re
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from images.build import run_build
from spawner_config.settings import ROOT
from tests.clients.browser import Browser, BrowserError
from tests.docker.stack import docker, fill_in, run, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.stack import Stack

IMAGE = "farandole-test-postgres"
RECIPE = Path(__file__).with_name("postgres")
EXAMPLE = re.compile(r"^# FARANDOLE_DATABASE=(\S+)$", re.MULTILINE)
"""Captures the example of a database address in .env.example."""
REMEDY = re.compile(r"`(docker compose exec [^`]+)`")
AGAIN_SECONDS = 240.0


def postgres_settings(password: str) -> dict[str, str]:
    """Return the settings that .env.example lists for PostgreSQL, with this password."""
    [address] = EXAMPLE.findall((ROOT / ".env.example").read_text())
    return {
        "COMPOSE_PROFILES": "postgres",
        "FARANDOLE_POSTGRES_PASSWORD": password,
        "FARANDOLE_DATABASE": address.replace("PASSWORD", password),
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run a hub with PostgreSQL for this module, instead of the hub that the session shares."""
    run_build(["--tag", IMAGE, str(RECIPE)])
    try:
        folder = tmp_path_factory.mktemp("database")
        (folder / "docker-compose.override.yml").write_text(f"services: {{postgres: {{image: {IMAGE}}}}}\n")
        with running(folder, subnets="10.214.48.0/20", **postgres_settings(secrets.token_hex(18))) as stack:
            yield stack
    finally:
        docker("rmi", IMAGE)


def rows(stack: Stack, query: str) -> set[str]:
    """Run a query inside the database's container and return its rows."""
    done = stack.compose("exec", "-T", "postgres", "psql", "-U", "farandole", "-tAc", query)
    return set(done.stdout.split())


def may_log_in(stack: Stack, user: str) -> bool:
    try:
        Browser(stack.url, user, stack.passwords[user])
    except (BrowserError, OSError):
        # These errors also occur while the hub has no connection to its database or is still starting.
        return False
    return True


def test_the_database_contains_users_and_their_passwords(stack: Stack) -> None:
    stack.sign_up("petra")
    assert may_log_in(stack, "petra")
    tables = rows(stack, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert {"users", "spawners", "api_tokens", "oauth_codes", "users_info", "alembic_version"} <= tables
    assert "petra" in rows(stack, "SELECT name FROM users")
    assert "petra" in rows(stack, "SELECT username FROM users_info")
    files = stack.compose("exec", "-T", "hub", "ls", "/srv/farandole").stdout.split()
    assert "cookie_secret" in files
    assert [name for name in files if "sqlite" in name] == []


def test_the_database_runs_as_its_own_user(stack: Stack) -> None:
    status = stack.compose("exec", "-T", "postgres", "cat", "/proc/1/status").stdout
    capabilities = dict(re.findall(r"^(Uid|CapEff|NoNewPrivs):\s+(\w+)", status, re.MULTILINE))
    assert capabilities.pop("Uid") != "0"
    assert capabilities == {"CapEff": "0" * 16, "NoNewPrivs": "1"}


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([("restart", "postgres")], id="restarted under the hub"),
        pytest.param([("restart", "hub", "postgres")], id="both restarted", marks=pytest.mark.release),
        pytest.param([("down",), ("up", "-d")], id="recreated"),
    ],
)
def test_accounts_survive(stack: Stack, commands: list[tuple[str, ...]]) -> None:
    user = f"user-{secrets.token_hex(3)}"
    stack.sign_up(user)
    for command in commands:
        stack.compose(*command)
    wait_until(lambda: may_log_in(stack, user), AGAIN_SECONDS)
    assert user in rows(stack, "SELECT name FROM users")


def log_of(stack: Stack, service: str) -> str:
    done = run("docker", "logs", f"{stack.name}-{service}")
    return done.stdout + done.stderr


@pytest.mark.release
def test_a_password_changed_only_in_env_is_reported_with_a_remedy_that_works(stack: Stack) -> None:
    env = stack.folder / ".env"
    before, password = env.read_text(), secrets.token_hex(18)
    env.write_text(fill_in(before, postgres_settings(password)))
    stack.compose("up", "-d")
    message = "rejects the password in FARANDOLE_DATABASE"
    wait_until(lambda: message in log_of(stack, "hub"), AGAIN_SECONDS)
    log = log_of(stack, "hub")
    assert "Traceback" not in log
    assert password not in log
    remedy = REMEDY.search(log)
    assert remedy, log
    without_terminal = remedy[1].replace(" exec ", " exec -T ")
    done = run(*shlex.split(without_terminal), cwd=stack.folder, typed=f"{password}\n{password}\n")
    assert not done.returncode, done.stderr
    # No further command is needed, because the engine restarts the hub.
    stack.wait_ready()
    stack.sign_up("pia")
    assert may_log_in(stack, "pia")
