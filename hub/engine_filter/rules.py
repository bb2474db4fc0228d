"""The filter's rules: which images, volumes and networks are admitted, and which objects belong to the hub."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from hub.engine_filter.refused import RefusedError
from spawner_config.containers.addresses import SUBNETS, SUBNETS_WANTED
from spawner_config.image_names import is_admitted
from spawner_config.labels import HUB_LABEL
from spawner_config.models import Variables, Words
from spawner_config.shares import Shares
from spawner_config.swarm.shared_home import SharedHome

ROLE_LABEL = "farandole.role"
SERVICE = "service"


class Rules(Variables):
    """The rules for one hub on this engine; all objects of the hub have the label ``farandole.hub=<name>``."""

    # The hyphen of `prefix` distinguishes the hub's names from ids, which the engine accepts in place of names.
    # The length is limited because the names of users' networks begin with this name, and each of them must fit into
    # a DNS label of 63 characters.
    name: str = Field(
        "farandole", pattern="^[a-z][a-z0-9_.-]{0,26}$", description="a-z, then up to 26 of a-z, 0-9, '_', '.' and '-'"
    )
    images: Words = Field(
        ("farandole-notebook*", "farandole-serving*"),
        alias="FARANDOLE_ALLOWED_IMAGES",
        min_length=1,
        description="names of images, such as 'farandole-notebook*'",
    )
    shared_volumes: tuple[str, ...] = Field((), alias="shared_volumes")
    addresses: Annotated[IPv4Network, BeforeValidator(IPv4Network)] = Field(
        IPv4Network(SUBNETS), alias="FARANDOLE_SUBNETS", description=SUBNETS_WANTED
    )
    gpu_kind: str = Field("nvidia.com/gpu", alias="FARANDOLE_GPU_KIND")
    deployment: Literal["docker", "swarm"] = Field("docker", description="docker or swarm with the compose file")
    homes: SharedHome | None = Field(None, alias="homes")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Return the rules that the FARANDOLE_ variables set; raises `SettingsError`."""
        rules = super().from_environment(environ)
        volumes = tuple(data.volume for data in Shares.from_environment(environ, rules.name).data)
        return rules.model_copy(update={"shared_volumes": volumes, "homes": SharedHome.from_environment(environ)})

    @property
    def swarm(self) -> bool:
        """Whether the hub's servers run as services of a swarm."""
        return self.deployment == "swarm"

    @property
    def prefix(self) -> str:
        """The prefix of the names of the hub's volumes and networks."""
        return f"{self.name}-"

    @property
    def label(self) -> dict[str, str]:
        """The label that all objects of the hub have."""
        return {HUB_LABEL: self.name}

    def owns(self, labels: Mapping[str, Any] | None) -> bool:
        """Return whether an object with these labels belongs to this hub."""
        return (labels or {}).get(HUB_LABEL) == self.name

    def admits_image(self, reference: str) -> bool:
        """Return whether an image may be pulled and started.

        In FARANDOLE_ALLOWED_IMAGES, ``*`` does not match a slash, so that it does not admit other repositories.
        """
        return is_admitted(reference, self.images)

    def check_image(self, reference: str) -> None:
        """Raise `RefusedError` if the image may not be pulled and started."""
        if not self.admits_image(reference):
            raise RefusedError(f"The image {reference!r} is not among the allowed images: {', '.join(self.images)}.")

    def shares_volume(self, name: str) -> bool:
        """Return whether the administrator shares this volume with all users, read-only."""
        return name in self.shared_volumes


def is_service(labels: Mapping[str, Any] | None) -> bool:
    """Return whether these labels mark one of the hub's own services, which the hub may not change."""
    return (labels or {}).get(ROLE_LABEL) == SERVICE
