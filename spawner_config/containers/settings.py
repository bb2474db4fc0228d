"""The settings of the deployments with containers, which `.env.example` explains."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated

from pydantic import BeforeValidator, Field, InstanceOf

from spawner_config.containers.addresses import (
    LARGEST_MTU,
    MTU,
    MTU_WANTED,
    SMALLEST_MTU,
    SUBNETS,
    SUBNETS_WANTED,
    AddressRange,
)
from spawner_config.deployment import ServerSettings
from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Switch, Whole
from spawner_config.quotas.sizes import WANTED, HomeSizes, Sizes


def _read_range(text: str) -> AddressRange:
    return AddressRange(whole=IPv4Network(text))


class DockerSettings(ServerSettings):
    """The settings of a hub with containers.

    - ``mtu`` is in bytes.
    - ``scratch`` is how much a container may write outside of its volumes, or empty for no limit.
    """

    addresses: Annotated[InstanceOf[AddressRange], BeforeValidator(_read_range)] = Field(
        AddressRange(whole=IPv4Network(SUBNETS)), alias="FARANDOLE_SUBNETS", description=SUBNETS_WANTED
    )
    internet: Switch = Field(True, description="yes or no")
    mtu: Whole = Field(MTU, ge=SMALLEST_MTU, le=LARGEST_MTU, description=MTU_WANTED)
    scratch: str = Field("", pattern=MEMORY, description=MEMORY_EXAMPLE)
    home_size: Sizes = Field(HomeSizes(), description=WANTED)
