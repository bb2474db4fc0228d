"""Profiles and limits: read from one TOML file, checked when read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from spawner_config.profiles.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")
MEMORY = re.compile(r"[1-9][0-9]*[KMGT]")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/@-]*")
GPU_ID = re.compile(r"[0-9]+|(GPU|MIG)-[0-9A-Za-z-]+")


class ProfileError(ValueError):
    """Raised when the profiles' file holds a value that cannot work; names the key."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of the host: its ``id`` as the engine knows it, an index or a UUID, and its ``gpu_class``, any short name.

    Raises `ProfileError`.
    """

    id: str
    gpu_class: str

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _require(isinstance(self.id, str) and GPU_ID.fullmatch(self.id), "id", "text as '0' or 'GPU-<uuid>'")
        class_fits = isinstance(self.gpu_class, str) and NAME.fullmatch(self.gpu_class)
        _require(class_fits, "class", "lower-case letters, digits, '-', as 'rtx-2080-ti'")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A named size of server.

    ``ranks`` is the number of ranks on each worker, ``cpus`` a number of CPUs, ``memory`` text as ``4G``; None means
    no limit. ``image`` is another image than the hub's own, ``gpus`` a number of GPUs of the class ``gpu_class`` (None:
    of any class) that the server has for itself, ``data`` the volumes of FARANDOLE_SHARED_VOLUMES that it has (None:
    all); these are for deployments in containers. ``swarm`` and ``kubernetes`` are what only these deployments read,
    see `spawner_config.swarm.settings` and `spawner_config.kubernetes.profiles`. Raises `ProfileError`.
    """

    name: str
    description: str
    ranks: int = 1
    cpus: float | None = None
    memory: str | None = None
    image: str | None = None
    gpus: int = 0
    gpu_class: str | None = None
    data: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    swarm: Mapping[str, Any] = field(default_factory=dict)
    kubernetes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _require(isinstance(self.name, str) and NAME.fullmatch(self.name), "name", "lower-case letters, digits, '-'")
        _require(isinstance(self.description, str), "description", "text")
        _require(_is_whole(self.ranks) and self.ranks >= 1, "ranks", "a whole number of at least 1")
        _require(self.cpus is None or (_is_number(self.cpus) and self.cpus > 0), "cpus", "a number above 0")
        memory_fits = isinstance(self.memory, str) and MEMORY.fullmatch(self.memory)
        _require(self.memory is None or memory_fits, "memory", "text as '512M' or '4G'")
        image_fits = isinstance(self.image, str) and IMAGE.fullmatch(self.image)
        _require(self.image is None or image_fits, "image", "the name of an image, as 'farandole-notebook-course:0.1'")
        _require(_is_whole(self.gpus) and self.gpus >= 0, "gpus", "a whole number")
        class_fits = isinstance(self.gpu_class, str) and self.gpus
        _require(self.gpu_class is None or class_fits, "gpu_class", "text, in a profile with gpus = 1 or more")
        _require(self.data is None or _is_texts(self.data), "data", "a list of volumes, as ['imagenet']")
        _require(_is_environment(self.environment), "environment", "a table of text values")
        _require(isinstance(self.swarm, Mapping), "swarm", "a table, [profile.swarm]")
        _require(isinstance(self.kubernetes, Mapping), "kubernetes", "a table, [profile.kubernetes]")

    def variables(self, ranks: int = 1) -> dict[str, str]:
        """Return the environment of a server with ``ranks`` ranks: the profile's own, and each rank's share of CPUs."""
        threads = {} if self.cpus is None else {"OMP_NUM_THREADS": str(max(1, int(self.cpus / ranks)))}
        return {**threads, **self.environment}

    def public(self) -> dict[str, Any]:
        """Return what users may know of the profile, as JSON."""
        return {
            "name": self.name,
            "description": self.description,
            "ranks": self.ranks,
            "cpus": self.cpus,
            "memory": self.memory,
            "gpus": self.gpus,
            "gpu_class": self.gpu_class,
        }


@dataclass(frozen=True, kw_only=True)
class ProfileSet:
    """All profiles of a hub, the default one first, its limits, and the GPUs of its host."""

    profiles: tuple[Profile, ...]
    limits: Limits
    gpus: tuple[Gpu, ...] = ()

    @property
    def default(self) -> Profile:
        """The profile of those who do not choose."""
        return self.profiles[0]

    def get(self, name: object) -> Profile:
        """Return the profile of that name; raises `LookupError` that lists those there are."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        known = ", ".join(profile.name for profile in self.profiles)
        raise LookupError(f"There is no profile {name!r} here. Choose one of: {known}.")


def read_profiles(path: Path, gpus: str | None = None, *, counted: bool = True) -> ProfileSet:
    """Return what the file at ``path`` defines; raises `ProfileError`.

    ``gpus``, the variable FARANDOLE_GPUS, replaces the file's GPUs: ``0:rtx-2080-ti,1:rtx-2080-ti``. Where GPUs are not
    ``counted`` here, but by a scheduler, profiles may ask for any.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ProfileError(f"{path} cannot be read: {exc.strerror}. It must define at least one [[profile]].") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ProfileError(f"{path} is not valid TOML: {exc}") from exc
    try:
        return parse_profiles(content, parse_gpus(gpus) if gpus else None, counted=counted)
    except ProfileError as exc:
        raise ProfileError(f"{path}: {exc}") from exc


def parse_profiles(content: dict[str, Any], gpus: tuple[Gpu, ...] | None = None, *, counted: bool = True) -> ProfileSet:
    """Return the catalogue that a parsed file defines, with other ``gpus`` where given; raises `ProfileError`."""
    _refuse_unknown(content, ("limits", "profile", "gpu"), "the file")
    tables = content.get("profile", [])
    _require(isinstance(tables, list) and tables, "profile", "at least one [[profile]] table")
    profiles = tuple(_profile(number, table) for number, table in enumerate(tables, start=1))
    names = [profile.name for profile in profiles]
    _require(len(set(names)) == len(names), "name", "different for each profile")
    limits = _limits(content.get("limits", {}))
    for profile in profiles:
        _require(
            profile.ranks <= limits.ranks_per_worker,
            f"ranks of profile {profile.name!r}",
            f"at most limits.ranks_per_worker ({limits.ranks_per_worker})",
        )
    gpus = _gpus(content.get("gpu", [])) if gpus is None else gpus
    for profile in profiles if counted else ():
        _check_gpus(profile, gpus)
    return ProfileSet(profiles=(*profiles, *_gpu_profiles(profiles, gpus)), limits=limits, gpus=gpus)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs that a text as ``0:rtx-2080-ti,1:rtx-2080-ti`` names; raises `ProfileError`."""
    pairs = [item.strip().partition(":") for item in text.split(",") if item.strip()]
    try:
        return _distinct(tuple(Gpu(id=gpu_id, gpu_class=gpu_class) for gpu_id, _, gpu_class in pairs))
    except ProfileError as exc:
        raise ProfileError(f"FARANDOLE_GPUS is {text!r}, not as '0:rtx-2080-ti,1:rtx-2080-ti': {exc}") from exc


def _gpus(tables: Any) -> tuple[Gpu, ...]:
    _require(isinstance(tables, list), "gpu", "[[gpu]] tables")
    for table in tables:
        _refuse_unknown(table, ("id", "class"), "a [[gpu]] table")
    return _distinct(tuple(Gpu(id=table.get("id"), gpu_class=table.get("class")) for table in tables))


def _distinct(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    _require(len({gpu.id for gpu in gpus}) == len(gpus), "the id of a GPU", "different for each GPU")
    return gpus


def _gpu_profiles(profiles: tuple[Profile, ...], gpus: tuple[Gpu, ...]) -> list[Profile]:
    """Return a profile for each class where the file has none with GPUs: on a new host FARANDOLE_GPUS is enough."""
    if any(profile.gpus for profile in profiles):
        return []
    names = dict.fromkeys(gpu.gpu_class for gpu in gpus)
    taken = {profile.name for profile in profiles}
    return [
        Profile(name=name, description="One GPU, one rank on each worker", gpus=1, gpu_class=name)
        for name in names
        if name not in taken
    ]


def _check_gpus(profile: Profile, gpus: tuple[Gpu, ...]) -> None:
    there = sum(profile.gpu_class in {None, gpu.gpu_class} for gpu in gpus)
    kind = f" of class {profile.gpu_class!r}" if profile.gpu_class else ""
    _require(
        profile.gpus <= there,
        f"gpus of profile {profile.name!r}",
        f"at most {there}, the number of GPUs{kind} that [[gpu]] tables or FARANDOLE_GPUS name on this host",
    )


def _profile(number: int, table: dict[str, Any]) -> Profile:
    where = f"profile {table.get('name', number)!r}"
    _refuse_unknown(table, [item.name for item in fields(Profile)], where)
    for key in ("name", "description"):
        _require(key in table, f"{key} of {where}", "present")
    try:
        return Profile(**table)
    except ProfileError as exc:
        raise ProfileError(f"{where}: {exc}") from exc


def _limits(table: dict[str, Any]) -> Limits:
    _refuse_unknown(table, [item.name for item in fields(Limits)], "limits")
    for key, value in table.items():
        _require(_is_whole(value) and value >= 1, f"limits.{key}", "a whole number of at least 1")
    return Limits(**table)


def _refuse_unknown(table: dict[str, Any], known: list[str] | tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ProfileError(f"{where} has an unknown key {key!r}. Known keys: {', '.join(known)}.")


def _require(fits: object, key: str, wanted: str) -> None:
    if not fits:
        raise ProfileError(f"{key} must be {wanted}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_environment(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(text, str) for text in value)
