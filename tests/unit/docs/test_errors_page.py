"""The page of error messages lists all messages of the code, and each message is a sentence."""

from __future__ import annotations

import ast
import re

import pytest

from docs.errors_page import PAGE, PARTS, collect, page
from docs.messages import Module, Names, Texts

ENTRIES = [
    (folder, error, entry.message)
    for folder in PARTS.values()
    for (error, _), entries in collect(folder).items()
    for entry in entries
]


def test_the_page_lists_the_messages_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "The messages have changed: run `make errors`."


def test_all_errors_for_users_are_listed() -> None:
    found = {error for folder, error, _ in ENTRIES if folder == "extension/farandole"}
    assert found >= {
        "ClusterExistsError",
        "DeadlineError",
        "HubBusyError",
        "HubError",
        "HubUnreachableError",
        "NoClusterError",
        "PermissionDeniedError",
        "QuotaError",
        "RankDiedError",
        "RankError",
        "ReportError",
        "RunNotFoundError",
        "TransferError",
        "UsageError",
        "WorkerStartError",
    }
    assert len(ENTRIES) > 350


def test_each_message_is_a_sentence() -> None:
    for _, error, message in ENTRIES:
        assert message == " ".join(message.split()), error
        assert len(re.findall(r"[A-Za-z]+", message)) >= 3, message
        assert re.search(r"[\w.)}`'?+/>-]$", message), f"{message!r} ends in the middle"


def texts(code: str) -> list[str]:
    """Return the messages of the only error that a function makes."""
    tree = ast.parse(code)
    module = Module(tree)
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"]
    [call] = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise)]
    return Texts(Names.shared([]).within(module), function).of_all(call.args)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(a):\n    raise E(f'{a.name!r} is {len(a)} long')", ["{name} is {number of a} long"]),
        ("def f(a):\n    raise E('a ' + ('few words' if a else 'lot of words'))", ["a few words", "a lot of words"]),
        ("LEAST = 3\ndef f(a):\n    raise E(f'at least {LEAST}, as {type(a).__name__}')", ["at least 3, as {type}"]),
        ("def f(a):\n    why = f'for {a}'\n    raise E(f'not {why}')", ["not for {a}"]),
        ("def g(b):\n    return f'what {b} says'\ndef f(a):\n    raise E(g(a))", ["what {b} says"]),
        ("def f(a):\n    raise E(f'one of {\", \".join(sorted(a))}')", ["one of {a}"]),
    ],
)
def test_messages_are_found_in_code(code: str, found: list[str]) -> None:
    assert texts(code) == found


def test_fields_of_models_have_messages() -> None:
    messages = {message for folder, _, message in ENTRIES if folder == "spawner_config"}
    assert "FARANDOLE_HTTPS is {value}. It must be yes or no." in messages
    assert "cpus must be a number above 0." in messages
