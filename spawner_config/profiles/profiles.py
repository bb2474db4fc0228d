"""Reads the profiles, limits and GPUs of a hub from a TOML file and checks them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from farandole.suggestions import did_you_mean
from pydantic import Field, model_validator

from spawner_config.gpus.model import Gpu, distinct, parse_gpus
from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Table, naming
from spawner_config.profiles.limits import Limits
from spawner_config.settings import ProfileError

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = {"name", "description", "ranks", "cpus", "memory", "gpus", "gpu_class"}


class Profile(Table):
    """A named server size that users can choose; raises `ProfileError` for invalid values.

    - ``ranks``: the number of ranks on each worker
    - ``cpus``, ``memory``: the limits of a server; None means no limit
    - ``image``: the image to use instead of the hub's default image, for deployments with containers
    - ``gpus``, ``gpu_class``: the number of GPUs that a server gets exclusively, and their class; None means any class
    - ``data``: the volumes from FARANDOLE_SHARED_VOLUMES that a server mounts; None means all of them
    - ``swarm``, ``kubernetes``: tables for only one deployment, see `spawner_config.swarm.settings` and
      `spawner_config.kubernetes.profiles`
    """

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,29}$", description="lower-case letters, digits and '-'")
    description: str = Field(description="text")
    ranks: int = Field(default=1, ge=1, description="a whole number of at least 1")
    cpus: float | None = Field(default=None, gt=0, description="a number above 0")
    memory: str | None = Field(default=None, pattern=MEMORY, description=MEMORY_EXAMPLE)
    image: str | None = Field(
        default=None,
        pattern="^[a-z0-9][a-z0-9._:/@-]*$",
        description="the name of an image, such as 'farandole-notebook-course:0.1'",
    )
    gpus: int = Field(default=0, ge=0, description="a whole number")
    gpu_class: str | None = Field(default=None, description="text")
    data: Sequence[str] | None = Field(default=None, description="a list of volumes, such as ['imagenet']")
    environment: dict[str, str] = Field(default={}, description="a table of text values")
    swarm: dict[str, Any] = Field(default={}, description="a table, [profile.swarm]")
    kubernetes: dict[str, Any] = Field(default={}, description="a table, [profile.kubernetes]")

    @model_validator(mode="after")
    def _check_gpu_class(self) -> Self:
        if self.gpu_class is not None and not self.gpus:
            raise ValueError("gpu_class must be in a profile with gpus = 1 or more.")
        return self

    def variables(self, ranks: int = 1) -> dict[str, str]:
        """Return the profile's environment variables, and OMP_NUM_THREADS for each rank's share of the CPUs."""
        threads = {} if self.cpus is None else {"OMP_NUM_THREADS": str(max(1, int(self.cpus / ranks)))}
        return {**threads, **self.environment}

    def public(self) -> dict[str, Any]:
        """Return the values that users may see, for JSON."""
        return self.model_dump(include=PUBLIC)


@dataclass(frozen=True, kw_only=True)
class ProfileSet:
    """A hub's profiles, of which the first is the default, its limits, and the GPUs of its machine."""

    profiles: tuple[Profile, ...]
    limits: Limits
    gpus: tuple[Gpu, ...] = ()

    @property
    def default(self) -> Profile:
        """The profile for users who do not choose one."""
        return self.profiles[0]

    def get(self, name: object) -> Profile:
        """Return the profile with this name; raises `LookupError` with a list of the hub's profiles."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        known = [profile.name for profile in self.profiles]
        hint = did_you_mean(str(name), known)
        raise LookupError(f"There is no profile {name!r} here. Choose one of: {', '.join(known)}.{hint}")


class ProfilesFile(Table):
    """The top level of profiles.toml, before the contents of its tables are checked."""

    limits: dict[str, Any] = Field({}, description="a table, [limits]")
    profile: list[dict[str, Any]] = Field(min_length=1, description="at least one [[profile]] table")
    gpu: list[dict[str, Any]] = Field([], description="a list of [[gpu]] tables")


def read_profiles(path: Path, gpus: str | None = None, *, counted: bool = True) -> ProfileSet:
    """Return the profiles, limits and GPUs that the file at ``path`` defines; raises `ProfileError`.

    ``gpus`` is the value of FARANDOLE_GPUS, which replaces the file's GPUs. ``counted`` is False if a scheduler assigns
    the GPUs instead of the hub; profiles may then request any number of GPUs.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return parse_profiles(content, parse_gpus(gpus) if gpus else None, counted=counted)
    except OSError as exc:
        raise ProfileError(f"{path} cannot be read: {exc.strerror}. It must define at least one [[profile]].") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ProfileError(f"{path} is not valid TOML: {exc}") from exc
    except ProfileError as exc:
        raise ProfileError(f"{path}: {exc}") from exc


def parse_profiles(content: dict[str, Any], gpus: tuple[Gpu, ...] | None = None, *, counted: bool = True) -> ProfileSet:
    """Return the profiles, limits and GPUs in a parsed file; ``gpus`` replaces its GPUs. Raises `ProfileError`."""
    file = ProfilesFile(**content)
    profiles = tuple(_profile(number, table) for number, table in enumerate(file.profile, start=1))
    names = [profile.name for profile in profiles]
    _require(len(set(names)) == len(names), "name", "different for each profile")
    with naming("limits"):
        limits = Limits(**file.limits)
    gpus = distinct(tuple(_gpu(table) for table in file.gpu)) if gpus is None else gpus
    for profile in profiles:
        _check_ranks(profile, limits)
        if counted:
            _check_gpus(profile, gpus)
    return ProfileSet(profiles=(*profiles, *_gpu_profiles(profiles, gpus)), limits=limits, gpus=gpus)


def _profile(number: int, table: dict[str, Any]) -> Profile:
    with naming(f"profile {table.get('name', number)!r}"):
        return Profile(**table)


def _gpu(table: dict[str, Any]) -> Gpu:
    if unknown := table.keys() - {"id", "class"}:
        raise ProfileError(f"[[gpu]]: unknown key {min(unknown)!r}. Known keys: id, class.")
    return Gpu(id=table.get("id", ""), gpu_class=table.get("class", ""))


def _gpu_profiles(profiles: tuple[Profile, ...], gpus: tuple[Gpu, ...]) -> list[Profile]:
    """Return a profile for each GPU class, or an empty list if the file already has a profile with GPUs.

    A class gets no profile if a profile in the file already has its name.
    With these profiles, setting FARANDOLE_GPUS is enough to use the GPUs of a new machine.
    """
    if any(profile.gpus for profile in profiles):
        return []
    names = dict.fromkeys(gpu.gpu_class for gpu in gpus)
    taken = {profile.name for profile in profiles}
    return [
        Profile(name=name, description="One GPU, one rank on each worker", gpus=1, gpu_class=name)
        for name in names
        if name not in taken
    ]


def _check_ranks(profile: Profile, limits: Limits) -> None:
    _require(
        profile.ranks <= limits.ranks_per_worker,
        f"ranks of profile {profile.name!r}",
        f"at most limits.ranks_per_worker ({limits.ranks_per_worker})",
    )


def _check_gpus(profile: Profile, gpus: tuple[Gpu, ...]) -> None:
    there = sum(profile.gpu_class in {None, gpu.gpu_class} for gpu in gpus)
    kind = f" of class {profile.gpu_class!r}" if profile.gpu_class else ""
    _require(
        profile.gpus <= there,
        f"gpus of profile {profile.name!r}",
        f"at most {there}, the number of GPUs{kind} that [[gpu]] tables or FARANDOLE_GPUS name on this host",
    )


def _require(fits: object, key: str, wanted: str) -> None:
    if not fits:
        raise ProfileError(f"{key} must be {wanted}.")
