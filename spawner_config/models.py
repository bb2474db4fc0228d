"""Base classes for pydantic models of profiles.toml and the FARANDOLE_ variables, which administrators edit.

If a value is invalid, the ``description`` of its field completes the sentence "KEY must be ..." in the error message.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from spawner_config.settings import ProfileError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

MEMORY = "^[1-9][0-9]*[KMGT]$"
MEMORY_EXAMPLE = "text such as '512M' or '4G'"


def _yes_or_no(value: object) -> object:
    return {"yes": True, "no": False}.get(value) if isinstance(value, str) else value


def _digits(value: object) -> object:
    return value if not isinstance(value, str) or value.isdigit() else None


def _words(value: object) -> object:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


Switch = Annotated[bool, BeforeValidator(_yes_or_no)]
"""A variable whose value is ``yes`` or ``no``."""
Whole = Annotated[int, BeforeValidator(_digits)]
"""An integer variable that contains only digits. By itself, pydantic would also accept ``1_500`` and ``1500.0``."""
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""A variable with words between commas or spaces."""


class Checked(BaseModel):
    """A frozen model that reports its first invalid value in one sentence."""

    model_config = ConfigDict(frozen=True)
    error: ClassVar[type[ValueError]]

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as exc:
            raise self.error(self._sentence(exc.errors()[0], values)) from exc

    @classmethod
    def _sentence(cls, fault: ErrorDetails, values: Mapping[str, Any]) -> str:
        raise NotImplementedError


class Table(Checked):
    """A table in profiles.toml; raises `ProfileError` for unknown keys and invalid values."""

    model_config = ConfigDict(strict=True, extra="forbid")
    error = ProfileError

    @classmethod
    def _sentence(cls, fault: ErrorDetails, _values: Mapping[str, Any]) -> str:
        if fault["type"] == "value_error":
            return str(fault["ctx"]["error"])
        key = str(fault["loc"][0])
        if fault["type"] == "extra_forbidden":
            return f"unknown key {key!r}. Known keys: {', '.join(cls.model_fields)}."
        return f"{key} must be {cls.model_fields[key].description}."


class Variables(Checked):
    """Settings from environment variables: FARANDOLE_NAME sets the field ``name``. Raises `SettingsError`."""

    model_config = ConfigDict(
        alias_generator=lambda name: f"FARANDOLE_{name.upper()}", validate_by_alias=True, validate_by_name=True
    )
    error = SettingsError

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from environment variables; an empty variable counts as unset."""
        aliases = [str(field.alias) for field in cls.model_fields.values()]
        return cls(**{alias: environ[alias] for alias in aliases if environ.get(alias)})

    @classmethod
    def _sentence(cls, fault: ErrorDetails, values: Mapping[str, Any]) -> str:
        variable, reason = str(fault["loc"][0]), fault.get("ctx", {}).get("error")
        # A validator that can describe the problem better than the description raises `SettingsError` with a full
        # sentence.
        if isinstance(reason, SettingsError):
            return str(reason)
        wanted = next(field.description for field in cls.model_fields.values() if field.alias == variable)
        found = "not set" if fault["type"] == "missing" else repr(values[variable]) + (f": {reason}" if reason else "")
        return f"{variable} is {found}. It must be {wanted}."


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Add the name of the table to the message of a `ProfileError`."""
    try:
        yield
    except ProfileError as exc:
        raise ProfileError(f"{table}: {exc}") from exc
