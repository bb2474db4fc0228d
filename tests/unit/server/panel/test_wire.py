"""Tests that each message type has a matching example in ``tests/wire``. The page's tests use the same examples."""

import json
import types
import typing
from pathlib import Path

import pytest
from farandole.server.panel import wire, wire_routes

EXAMPLES = Path(__file__).parents[3] / "wire"
TYPES = json.loads((EXAMPLES / "types.json").read_text(encoding="utf-8"))
UNIONS = (typing.Union, types.UnionType)


def misfit(value, kind, where="it"):
    """Return a description of how a JSON value differs from a type, or None if the value matches the type."""
    if typing.is_typeddict(kind):
        return _misfit_of_keys(value, typing.get_type_hints(kind), where)
    return None if kind is typing.Any else _misfit_of_values(value, kind, where)


def _misfit_of_values(value, kind, where):
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list and isinstance(value, list):
        return _first(misfit(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return _first(misfit(item, arguments[1], f"{where}.{key}") for key, item in value.items())
    return None if _fits(value, kind, origin, arguments) else f"{where} is {value!r}, not {kind}"


def _fits(value, kind, origin, arguments):
    if origin in UNIONS:
        return any(misfit(value, one) is None for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    wanted = (int, float) if kind is float else kind
    return origin is None and isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))


def _misfit_of_keys(value, hints, where):
    if not isinstance(value, dict) or set(value) != set(hints):
        return f"{where} has the keys {sorted(value) if isinstance(value, dict) else value!r}, not {sorted(hints)}"
    return _first(misfit(value[key], hint, f"{where}.{key}") for key, hint in hints.items())


def _first(found):
    return next((one for one in found if one is not None), None)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_an_example_fits_its_type(name):
    value = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    assert misfit(value, getattr(wire, TYPES[name], None) or getattr(wire_routes, TYPES[name])) is None


def test_every_file_has_a_type_and_every_message_an_example():
    assert {path.stem for path in EXAMPLES.glob("*.json")} == {*TYPES, "types"}
    messages = {kind.__name__ for kind in typing.get_args(wire.Message)}
    answers = {"State", "Cluster", "RunPage", "RunTable", "RunDetail", "RunSeries", "RunUsage"}
    answers |= {"LogPart", "LogMatches", "Problem", "Templates", "CreatedNotebook", "EndpointAnswer"}
    answers |= {"SnapshotPage", "SnapshotChanges", "SnapshotFolder", "SnapshotVersions", "SnapshotJob"}
    asked = {"Watch", "StartCluster", "ScaleCluster", "RunEdit", "CreateNotebook", "EndpointRequest"}
    asked |= {"TakeSnapshot", "RestoreFile"}
    assert set(TYPES.values()) == messages | answers | asked


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda state: state.update(more=1), "it has the keys"),
        (lambda state: state["clusters"][0].pop("lead"), r"it.clusters\[0\] has the keys"),
        (lambda state: state["clusters"][0].update(size="2"), "it.clusters.*size is '2'"),
        (lambda state: state["runs"]["runs"][0].update(goes_on=1), "goes_on is 1, not"),
        (lambda state: state["runs"]["runs"][0].update(status="over"), "status is 'over', not"),
        (lambda state: state["runs"].update(total=True), "total is True"),
        (lambda state: state["endpoints"][0].update(state="away"), r"it.endpoints\[0\].state is 'away', not"),
        (lambda state: state["endpoints"][0].pop("p95_ms"), r"it.endpoints\[0\] has the keys"),
        (lambda state: state["endpoints"][0].update(stream={}), r"it.endpoints\[0\].stream is {}, not"),
    ],
)
def test_a_mismatch_is_found(change, problem):
    state = json.loads((EXAMPLES / "state.json").read_text(encoding="utf-8"))
    change(state)
    with pytest.raises(AssertionError, match=problem):
        assert (found := misfit(state, wire_routes.State)) is None, found
