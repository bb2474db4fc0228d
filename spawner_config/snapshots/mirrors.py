"""The settings of mirrors, which docs/how-to/mirrors.md explains."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from spawner_config.access.secret_rules import MAKE_TOKEN, token_weakness
from spawner_config.models import Variables, Whole
from spawner_config.settings import SettingsError

MIRROR, TOKENS = "FARANDOLE_SNAPSHOTS_MIRROR", "FARANDOLE_SNAPSHOTS_MIRROR_TOKENS"
MIRROR_SCOPE = "custom:snapshots:mirror"
"""The scope of the tokens with which other hubs add to their mirrors."""
ACCOUNT = "mirror-"
"""How the names of the accounts of other hubs begin."""
PLACE = re.compile(r"/.*|rest:https?://[^/]+/.*|s3:(https?://)?[^/]+/.+", re.DOTALL)
LOGIN = re.compile(r"[a-z0-9]+:(https?://)?[^/]*@")
PORTS = {"http": 80, "https": 443}
HUB = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")


def _place(text: str) -> str:
    """Refuse the address of a mirror that is neither a folder nor one of the supported protocols."""
    if LOGIN.match(text):
        # The address is in the hub's log.
        raise SettingsError(f"{MIRROR} has a login. Remove it from the address, and set {MIRROR}_USER and _SECRET.")
    if text and not (PLACE.fullmatch(text) and (text.startswith("/") or _has_host(text))):
        raise SettingsError(
            f"{MIRROR} is {text!r}. It must be the absolute path of a folder, rest:https://HOST/services/snapshots/"
            "mirrors for another hub, or s3:https://HOST/BUCKET/FOLDER."
        )
    return text.rstrip("/") if text != "/" else text


def host_and_port(place: str) -> tuple[str, int]:
    """Return where a hub or a server of S3 listens; raises ValueError if the port is none. The host may be empty."""
    address = place.partition(":")[2]
    parts = urlsplit(address if "://" in address else f"https://{address}")
    return parts.hostname or "", parts.port or PORTS[parts.scheme]


def _has_host(place: str) -> bool:
    try:
        host, _ = host_and_port(place)
    except ValueError:
        return False
    return bool(host)


def _tokens(value: object) -> object:
    """Read NAME:TOKEN, separated by commas. No message contains a token."""
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in value.split(","))):
        name, _, token = entry.partition(":")
        if not HUB.fullmatch(name) or name in found:
            raise SettingsError(
                f"{TOKENS} must be NAME:TOKEN, separated by commas. Each name is of another hub, in lower-case "
                "letters, digits and hyphens, and occurs once."
            )
        if weakness := token_weakness(token):
            raise SettingsError(f"{TOKENS}: the token of {name} is too weak: it {weakness}. {MAKE_TOKEN}")
        if token in found.values():
            raise SettingsError(f"{TOKENS}: the token of {name} is also that of another hub. {MAKE_TOKEN}")
        found[name] = token
    return found


class MirrorSettings(Variables):
    """The second place of this hub's snapshots and state, and the hubs of which this hub is the second place."""

    snapshots_mirror: Annotated[str, AfterValidator(_place)] = ""
    snapshots_mirror_hours: Whole = Field(24, ge=1, description="a number of hours, at least 1")
    snapshots_mirror_user: str = ""
    snapshots_mirror_secret: str = Field("", repr=False)
    snapshots_mirror_tokens: Annotated[dict[str, str], BeforeValidator(_tokens)] = Field({}, repr=False)

    @property
    def accounts(self) -> dict[str, str]:
        """The names of the other hubs' accounts at this hub, with their tokens."""
        return {f"{ACCOUNT}{name}": token for name, token in self.snapshots_mirror_tokens.items()}
