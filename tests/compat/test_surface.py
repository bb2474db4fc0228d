"""Tests that all public names, magics and settings of the old commit 3ff8f67 still exist with the same arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spawner_config.settings import ROOT
from tests.compat.places import FIXTURES
from tests.compat.surface import make_targets, settings, surface

OLD: dict[str, Any] = json.loads((FIXTURES / "public.json").read_text(encoding="utf-8"))
NOW = surface()
POSITIONAL = {"POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"}


def callables(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Flatten nested tables. The keys of the result are dotted names."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= callables(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return found


NAMES, NAMES_NOW = (callables({**all_of["names"], **all_of["returned"]}) for all_of in (OLD, NOW))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_takes_the_same_arguments(name: str) -> None:
    assert name in NAMES_NOW
    old, now = NAMES[name], NAMES_NOW[name]
    if old is None:
        assert now is None
        return
    assert [one for one in now if one in old] == old
    new = [one for one in now if one not in old]
    assert all(default or kind.startswith("VAR") for _, kind, default in new), f"{name} needs more arguments"
    positional = [one[0] for one in old if one[1] in POSITIONAL]
    assert [one[0] for one in now if one[1] in POSITIONAL][: len(positional)] == positional


def test_the_exceptions_are_the_same() -> None:
    for name, bases in OLD["exceptions"].items():
        assert [base for base in NOW["exceptions"][name] if base in bases] == bases


@pytest.mark.parametrize("magic", OLD["magics"])
def test_a_magic_takes_the_same_options(magic: str) -> None:
    assert OLD["magics"][magic].items() <= NOW["magics"][magic].items()


def test_the_cluster_magic_has_the_same_actions() -> None:
    assert set(OLD["actions"]) <= set(NOW["actions"])


def test_settings_and_commands_of_operators_are_unchanged() -> None:
    assert set(OLD["settings"]) <= set(settings(ROOT))
    assert set(OLD["make"]) <= set(make_targets(ROOT))
