"""The settings of the hub's streams, which `.env.example` explains."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from spawner_config.access.secret_rules import MAKE_TOKEN, token_weakness
from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Variables
from spawner_config.settings import SettingsError

SECRET = "FARANDOLE_STREAMS_SECRET"


def _strong(secret: str) -> str:
    """Refuse a weak secret, from which others could derive the keys of all users."""
    if weakness := token_weakness(secret):
        raise SettingsError(f"{SECRET} is too weak: it {weakness}. {MAKE_TOKEN}")
    return secret


class StreamSettings(Variables):
    """The settings of the hub's streams: the secret of all keys, and how much disk space the streams of a user have."""

    streams_secret: Annotated[str, AfterValidator(_strong)] = Field(description="64 hexadecimal digits")
    streams_disk: str = Field("1G", pattern=MEMORY, description=MEMORY_EXAMPLE)
