"""Writes docs/reference/errors.md, the list of all error messages for users and operators: `make errors`.

Only the syntax tree of the code is read, so the page does not depend on what is installed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs.messages import (
    MOST_CALLERS,
    Function,
    Module,
    Names,
    Texts,
    assigned_to,
    filled,
    first_sentence,
    has_words,
    is_function,
    name_of,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "errors.md"
INTRODUCTION = """# Error messages

<!-- `make errors` writes this page from the source code. -->

This page lists the messages of the errors that users and operators see. A name in braces stands for a value. The column
*When* says what the code does at that point, in the words of its docstring.
"""
PARTS = {
    "In notebooks and on the ranks": "extension/farandole",
    "At the hub": "spawner_config",
    "Commands for operators": "hub",
    "Commands that build images": "images",
}
"""Headings of the page, with the folder of each."""

OTHERS = {
    "HTTPError": ("HTTPError", "Raised when the hub or a server refuses a request. The browser shows the message."),
    "LookupError": ("LookupError", "Raised when a name is not in a list of choices."),
    "SystemExit": ("SystemExit", "Raised when a program ends. The message is the last line that it prints."),
    "refused_start": (
        "SpawnException",
        "Raised when a server cannot start. The spawn page and `%cluster start` show the message.",
    ),
    "fault": ("Faults", "Reported by `make doctor` when the hub, or a feature that `.env` asks for, cannot work."),
    "warning": ("Warnings", "Reported by `make doctor` when the hub works, but not as well as it can."),
}
"""Errors of other packages, and functions that make errors or findings: heading and description of each."""
SHARED = ("extension/farandole/exceptions.py", "spawner_config/settings.py")
"""Modules whose errors are raised in other folders."""
INTERNAL = {"DamagedError"}
"""Exceptions that the code handles itself."""
MESSAGE_ARGUMENTS = {"fault": slice(1, 3), "warning": slice(1, 3)}
"""The arguments that make the message, if it is not the first text among the arguments."""
MODELS = {
    "Variables": ("SettingsError", "{key} is {{value}}. It must be {wanted}."),
    "Table": ("ProfileError", "{key} must be {wanted}."),
}
"""For each base class of pydantic models, its error and the message for an invalid field; ``wanted`` is the field's
description."""

MODEL_OF = {"ServerSettings": "Variables"}
"""Base classes that inherit from one of `MODELS`."""

Errors = dict[str, tuple[str, str]]


@dataclass(frozen=True, order=True)
class Entry:
    """One message and the situation in which it occurs."""

    message: str
    when: str


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """Return the text of the page."""
    return "\n".join([INTRODUCTION, *(_part(heading, folder) for heading, folder in PARTS.items())])


def collect(folder: str) -> dict[tuple[str, str], set[Entry]]:
    """Return the messages of all errors that the code in a folder makes, by heading and description of the error."""
    modules = _modules(folder)
    errors = {**OTHERS, **_defined([*(Module.read(ROOT / path) for path in SHARED), *modules])}
    names = Names.shared([module for part in PARTS.values() for module in _modules(part)])
    found = defaultdict(set)
    for module in modules:
        own = {**errors, **_defined([module])}
        for name, entry in (*_entries(module, own, names.within(module)), *_fields(module, names.within(module))):
            found[own[name]].add(entry)
    return found


@cache
def _modules(folder: str) -> list[Module]:
    return [Module.read(path) for path in sorted((ROOT / folder).rglob("*.py"))]


def _part(heading: str, folder: str) -> str:
    sections = [_section(*error, entries) for error, entries in sorted(collect(folder).items())]
    return "\n".join([f"## {heading}\n", *sections])


def _section(heading: str, description: str, entries: Iterable[Entry]) -> str:
    rows = [f"| {_cell(entry.message)} | {entry.when} |" for entry in sorted(entries)]
    return "\n".join([f"### {heading}\n", f"{description}\n", "| Message | When |", "| --- | --- |", *rows, ""])


def _cell(message: str) -> str:
    """Return a message as a code span, in which only pipes have to be escaped."""
    span = f"`` {message} ``" if "`" in message else f"`{message}`"
    return span.replace("|", r"\|")


def _defined(modules: Iterable[Module]) -> Errors:
    """Return heading and description of each exception that some modules define, by its name."""
    classes = [node for module in modules for node in module.tree.body if isinstance(node, ast.ClassDef)]
    errors = [node for node in classes if node.name.endswith("Error") and node.name not in INTERNAL]
    return {node.name: (node.name, first_sentence(node)) for node in errors}


def _entries(module: Module, errors: Errors, names: Names) -> Iterator[tuple[str, Entry]]:
    for call, around in _calls(module.tree):
        function = next((node for node in reversed(around) if is_function(node)), None)
        for name in _made(call, function):
            if name in errors:
                for message in filter(has_words, _messages(name, call, Texts(names, function))):
                    yield name, Entry(message, _when(module, around))


def _fields(module: Module, names: Names) -> Iterator[tuple[str, Entry]]:
    """Yield the messages of the fields of pydantic models, which the base classes of the models make."""
    for node in module.tree.body:
        bases = {name_of(base) for base in node.bases} if isinstance(node, ast.ClassDef) else set()
        for base in sorted({MODEL_OF.get(name, name) for name in bases} & set(MODELS)):
            error, message = MODELS[base]
            for key, wanted in _described(node, names, prefix="FARANDOLE_" if base == "Variables" else ""):
                yield error, Entry(message.format(key=key, wanted=wanted), first_sentence(node))


def _described(model: ast.ClassDef, names: Names, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the description of each field of a model that has one."""
    for field in model.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Call):
            said = {keyword.arg: Texts(names, None).of(keyword.value)[0] for keyword in field.value.keywords}
            key = name_of(field.target)
            if "description" in said:
                yield said.get("alias") or (prefix + key.upper() if prefix else key), said["description"]


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
    """Yield all calls, each with the classes and functions around it, the outermost first."""
    todo: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while todo:
        node, around = todo.pop()
        if isinstance(node, ast.Call):
            yield node, around
        if is_function(node) or isinstance(node, ast.ClassDef):
            around = [*around, node]
        todo += [(child, around) for child in ast.iter_child_nodes(node)]


def _made(call: ast.Call, function: Function | None) -> list[str]:
    """Return the names of the classes that a call may instantiate; a local variable may be one of two classes."""
    match call.func:
        case ast.Name(id=name):
            choices = [node for node in assigned_to(name, function) if isinstance(node, ast.IfExp)]
            return [name_of(part) for choice in choices for part in (choice.body, choice.orelse)] or [name]
        case ast.Attribute(value=ast.Name(id="web"), attr=name):
            return [name]
        case _:
            return []


def _messages(name: str, call: ast.Call, texts: Texts) -> list[str]:
    """Return the messages that a call may give its error."""
    if name in MESSAGE_ARGUMENTS:
        return texts.of_all(call.args[MESSAGE_ARGUMENTS[name]])
    for place, arg in enumerate(call.args[:2]):
        found = texts.of_all([arg])
        if isinstance(arg, ast.Constant | ast.JoinedStr) and len(call.args) > place + 1 and not _is_sentence(found):
            continue
        if has_words(found[0]):
            return [filled(text, call.args[place + 1 :]) for text in found] if name == "HTTPError" else found
    return []


def _is_sentence(texts: list[str]) -> bool:
    return all(" " in text for text in texts)


def _when(module: Module, around: list[ast.AST]) -> str:
    """Return the first sentence of the docstring of the function, or of the nearest caller that has one."""
    functions = [node for node in reversed(around) if is_function(node)]
    nodes = [*functions, *_callers(module, functions), *reversed(around), module.tree]
    return next(filter(None, map(first_sentence, nodes)), "").replace("|", r"\|")


def _callers(module: Module, functions: list[Function]) -> list[Function]:
    """Return the direct and indirect callers of functions within a module, the nearest first."""
    found = list(functions)
    for _ in range(MOST_CALLERS):
        found += [one for function in found for one in module.callers.get(function.name, []) if one not in found]
    return found[len(functions) :]


if __name__ == "__main__":
    main()
