"""Check the settings for missing values and weak secrets, and check the permissions of `.env`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hub.doctor.deployment import COMPOSE_FILE, ENV_FILE, raw_values
from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.access.required import LOGINS, SIGNUPS, required
from spawner_config.access.secret_rules import MAKE_PASSWORD, MAKE_TOKEN, password_weakness, token_weakness
from spawner_config.access.transport import INSECURE
from spawner_config.gpus.requests import REQUEST_FORMS
from spawner_config.settings import DATABASE_EXAMPLE, ORIGINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hub.doctor.deployment import Deployment

CHECK = "settings"
CHOICES = {
    "FARANDOLE_LOGIN": LOGINS,
    "FARANDOLE_SIGNUP": tuple(SIGNUPS),
    "FARANDOLE_INTERNET": ("yes", "no"),
    "FARANDOLE_GPU_REQUEST": REQUEST_FORMS,
    "FARANDOLE_ORIGINS": ORIGINS,
    "FARANDOLE_HTTPS": ("yes", "no"),
    "FARANDOLE_HTTP": ("", INSECURE),
    "FARANDOLE_FIREWALL": ("", "set"),
    "FARANDOLE_SNAPSHOTS": ("", "on", "off"),
}
ONLY_HERE = {
    "FARANDOLE_PRIVATE_RANGES",
    "FARANDOLE_BACKUP_PASSWORD_FILE",
    "FARANDOLE_BACKUP_USER",
    "FARANDOLE_BACKUP_SECRET",
}
"""Settings that only `make doctor` and `make backup` use, and that docker-compose.yml therefore does not mention."""
READ_BY_OTHERS = 0o077


def check_settings(deployment: Deployment) -> Iterator[Finding]:
    """Yield the findings about `.env` and about the environment, which overrides `.env`."""
    path = deployment.folder / ENV_FILE
    if not deployment.compose_file.exists():
        yield fault(CHECK, f"There is no {deployment.compose_file}.", f"Copy it there, beside {ENV_FILE}.")
        return
    if deployment.file is None:
        yield fault(CHECK, f"There is no {path}.", f"cp .env.example {ENV_FILE}, and fill in the values at its top.")
        return
    complaints = [
        *_missing(deployment),
        *_wrong_choices(deployment),
        *_weak(deployment),
        *_database(deployment),
        *_mode(path),
        *_swallowed(path),
        *_unknown(deployment),
    ]
    yield from complaints or [ok(CHECK, f"{path} is complete, and its secrets are strong")]


def _missing(deployment: Deployment) -> Iterator[Finding]:
    login = deployment.get("FARANDOLE_LOGIN")
    needed = {
        "FARANDOLE_PROXY_TOKEN": MAKE_TOKEN,
        # docker-compose.yml requires this setting with every FARANDOLE_LOGIN.
        "FARANDOLE_ADMIN_PASSWORD": "OAuth does not use it; set any text.",
        **{key: f"It must be {what}." for key, what in required(login if login in LOGINS else LOGINS[0]).items()},
    }
    if "caddy" in deployment.profiles:
        needed["FARANDOLE_DOMAIN"] = "Set the hub's host name. The host names of users are below it."
    if "postgres" in deployment.profiles:
        needed["FARANDOLE_POSTGRES_PASSWORD"] = "Make one: openssl rand -hex 18"
        needed["FARANDOLE_DATABASE"] = f"Set it to {DATABASE_EXAMPLE}"
    if "streams" in deployment.profiles:
        needed["FARANDOLE_STREAMS_SECRET"] = MAKE_TOKEN
    for key, remedy in needed.items():
        if not deployment.get(key):
            yield fault(CHECK, f"{key} is not set in {ENV_FILE}.", remedy)


def _wrong_choices(deployment: Deployment) -> Iterator[Finding]:
    for key, choices in CHOICES.items():
        if deployment.get(key) not in choices:
            wanted = ", ".join(choice or "nothing" for choice in choices)
            yield fault(CHECK, f"{key} is {deployment.get(key)!r}.", f"Set one of: {wanted}")


def _weak(deployment: Deployment) -> Iterator[Finding]:
    checks: dict[str, tuple[Callable[[str], str | None], str]] = {"FARANDOLE_PROXY_TOKEN": (token_weakness, MAKE_TOKEN)}
    if deployment.get("FARANDOLE_LOGIN") == "native":
        checks["FARANDOLE_ADMIN_PASSWORD"] = (password_weakness, MAKE_PASSWORD)
    checks["FARANDOLE_METRICS_TOKEN"] = checks["FARANDOLE_STREAMS_SECRET"] = (token_weakness, MAKE_TOKEN)
    if "postgres" in deployment.profiles:
        checks["FARANDOLE_POSTGRES_PASSWORD"] = (password_weakness, "Make one: openssl rand -hex 18")
    for key, (weakness_of, remedy) in checks.items():
        value = deployment.get(key)
        weakness = weakness_of(value) if value else None
        if weakness:
            yield fault(CHECK, f"{key} is too weak: it {weakness}.", remedy)


def _database(deployment: Deployment) -> Iterator[Finding]:
    password, database = deployment.get("FARANDOLE_POSTGRES_PASSWORD"), deployment.get("FARANDOLE_DATABASE")
    if "postgres" not in deployment.profiles or not (password and database):
        return
    if f":{password}@" not in database:
        yield fault(
            CHECK,
            "The password in FARANDOLE_DATABASE is not FARANDOLE_POSTGRES_PASSWORD: the hub could not log in.",
            "Make a password without special characters (openssl rand -hex 18), and write it into both.",
        )


def _mode(path: Path) -> Iterator[Finding]:
    mode = path.stat().st_mode & 0o777
    if mode & READ_BY_OTHERS:
        yield warning(CHECK, f"{path} has mode {mode:04o}: other users can read its secrets.", f"chmod 600 {path}")


def _swallowed(path: Path) -> Iterator[Finding]:
    for key, value in raw_values(path).items():
        if not value.startswith("'") and re.search(r"(?<!\$)\$(\$\$)*[A-Za-z_{]", value):
            yield fault(
                CHECK,
                f"{key} contains a $, after which compose expects the name of a variable: it would change the value.",
                "Put the value into single quotes.",
            )


def _unknown(deployment: Deployment) -> Iterator[Finding]:
    known = ONLY_HERE | set(re.findall(r"\$\{([A-Z_]+)", deployment.compose_file.read_text(encoding="utf-8")))
    for key in deployment.file or {}:
        if key.startswith("FARANDOLE_") and key not in known:
            yield warning(
                CHECK,
                f"{ENV_FILE} sets {key}, which {COMPOSE_FILE} does not know.",
                "Compare it with .env.example. The file may be of another version, or the name has a typing error.",
            )
