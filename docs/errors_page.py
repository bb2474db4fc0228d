"""`make errors`: write docs/reference/errors.md, the list of all error messages for users and operators.

This reads only the syntax tree of the code, so that the page does not depend on the installed packages.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs.messages import (
    Function,
    Module,
    Texts,
    assigned_to,
    filled,
    first_sentence,
    has_words,
    is_function,
    name_of,
    variants,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "errors.md"
INTRODUCTION = """# Error messages

<!-- `make errors` writes this page from the source code. -->

This page lists the messages of the errors that users and operators see. A name in braces stands for a value. The column
*When* describes what the code does at that point; it is taken from the docstrings.
"""
PARTS = {
    "In notebooks and on the ranks": "extension/farandole",
    "At the hub": "spawner_config",
    "Commands for operators": "hub",
    "Commands that build images": "images",
}
"""The headings of the page's parts, each with the folder whose messages the part lists."""

ENDPOINT = ("Answers of endpoints", "Sent by an endpoint that refuses a request, as `error` in the JSON of its answer.")
OTHERS = {
    "AttributeError": ("AttributeError", "Raised when an object has no attribute with the requested name."),
    "FileNotFoundError": ("FileNotFoundError", "Raised when a file of Farandole's installation is missing."),
    "HTTPException": ENDPOINT,
    "InferenceError": ENDPOINT,
    "InvalidInputError": ENDPOINT,
    "endpoint_answer": ENDPOINT,
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
"""The headings and descriptions for errors from other packages, and for functions that create errors or findings."""
SHARED = ("farandole.exceptions", "spawner_config.settings")
"""Modules whose exceptions are also raised by code in other folders."""
INTERNAL = {"BatchError", "DamagedError", "NoTensorError", "StageError"}
"""Exceptions that the page omits, because the code always handles them."""
MESSAGE_ARGUMENTS = {"fault": slice(1, 3), "warning": slice(1, 3)}
"""The arguments that form the message, for functions whose message is not their first text argument."""
MODELS = {
    "Variables": ("SettingsError", "{key} is {{value}}. It must be {wanted}."),
    "Table": ("ProfileError", "{key} must be {wanted}."),
}
"""For each base class of pydantic models, the error and the message for an invalid field.

In the message, ``wanted`` is the field's description.
"""

MODEL_OF = {"ServerSettings": "Variables"}
"""Base classes that themselves inherit from a class in `MODELS`, mapped to that class."""

MAKERS = {
    "_answer": ("endpoint_answer", "{message}"),
    "_no_gpu": ("refused_start", "{message}"),
    "_require": ("ProfileError", "{key} must be {wanted}."),
}
"""Functions that create an error from their arguments, with the name of the error and the format of its message."""
MESSAGES = {
    "Table._sentence": "ProfileError",
    "TokenLimit._too_many": "HTTPError",
    "Variables._sentence": "SettingsError",
    "_death": "RankDiedError",
    "_nothing_to_stop": "RefusedError",
    "_too_long": "HTTPError",
    "ended": "NoClusterError",
}
"""Functions that return, and attributes that store, complete messages, with the error that contains the message."""

Errors = dict[str, tuple[str, str]]


@dataclass(frozen=True, order=True)
class Entry:
    """A message, and the description of what the code does when the message occurs."""

    message: str
    when: str


@dataclass(frozen=True)
class Found:
    """An entry of the page, with the heading and description of its error, and the error's position in the code."""

    error: tuple[str, str]
    entry: Entry
    path: Path
    line: int


def main() -> None:
    """Write the page and print its path."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """Return the Markdown of the page."""
    return "\n".join([INTRODUCTION, *(_part(heading, folder) for heading, folder in PARTS.items())])


def collect(folder: str) -> dict[tuple[str, str], set[Entry]]:
    """Return the entries for a folder's code, grouped by the heading and description of their error."""
    entries = defaultdict(set)
    for found in find(folder):
        entries[found.error].add(found.entry)
    return entries


@cache
def find(folder: str) -> list[Found]:
    """Return the messages of all errors that the code in a folder creates."""
    modules = [module for module in program().values() if module.path.is_relative_to(ROOT / folder)]
    shared = {**OTHERS, **_defined([*(program()[name] for name in SHARED), *modules])}
    found = []
    for module in modules:
        errors = {**shared, **_defined([module])}
        for node, name, entry in (*_made(module), *_fields(module), *_elsewhere(module)):
            if name in errors and has_words(entry.message):
                found.append(Found(errors[name], entry, module.path, node.lineno))
    return found


@cache
def program() -> dict[str, Module]:
    """Return all modules by their dotted names."""
    modules: dict[str, Module] = {}
    for folder in PARTS.values():
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = [name for name in path.relative_to(ROOT).with_suffix("").parts if name != "__init__"]
            modules[".".join(names).removeprefix("extension.")] = Module.read(path, modules)
    return modules


def _part(heading: str, folder: str) -> str:
    sections = [_section(*error, entries) for error, entries in sorted(collect(folder).items())]
    return "\n".join([f"## {heading}\n", *sections])


def _section(heading: str, description: str, entries: Iterable[Entry]) -> str:
    rows = [f"| {_cell(entry.message)} | {entry.when} |" for entry in sorted(entries)]
    return "\n".join([f"### {heading}\n", f"{description}\n", "| Message | When |", "| --- | --- |", *rows, ""])


def _cell(message: str) -> str:
    """Return a message as a code span for a table cell, in which only pipes must be escaped."""
    span = f"`` {message} ``" if "`" in message else f"`{message}`"
    return span.replace("|", r"\|")


def _defined(modules: Iterable[Module]) -> Errors:
    """Return the heading and description of each exception that the modules define, by the name of the exception."""
    classes = [node for module in modules for node in module.tree.body if isinstance(node, ast.ClassDef)]
    errors = [node for node in classes if node.name.endswith("Error") and node.name not in INTERNAL]
    return {node.name: (node.name, first_sentence(node)) for node in errors}


def _made(module: Module) -> Iterator[tuple[ast.AST, str, Entry]]:
    """Yield the messages of errors that a call creates, such as a call of the error's class."""
    for call, around in _nodes(module.tree):
        function = _function(around)
        if isinstance(call, ast.Call) and (function is None or function.name not in MAKERS):
            for name in _errors(call, around, module):
                for message in _messages(name, call, module, Texts(module, function)):
                    yield call, MAKERS.get(name, (name,))[0], Entry(message, _when(module, around))


def _elsewhere(module: Module) -> Iterator[tuple[ast.AST, str, Entry]]:
    """Yield the messages from the functions and attributes in `MESSAGES`."""
    for node, around in _nodes(module.tree):
        match node:
            case ast.Return(value=ast.expr() as value):
                name, values = ".".join(one.name for one in around), [value]
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.BoolOp(values=values)):
                pass
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                values = [value]
            case _:
                continue
        for value in values if name in MESSAGES else []:
            for message in Texts(module, _function(around)).of_all([value]):
                yield node, MESSAGES[name], Entry(message, _when(module, around))


def _fields(module: Module) -> Iterator[tuple[ast.AST, str, Entry]]:
    """Yield the messages that the base classes of pydantic models create for invalid fields."""
    for node in module.tree.body:
        if (base := _model(node)) is not None:
            error, message = MODELS[base]
            for key, wanted in _described(node, module, prefix="FARANDOLE_" if base == "Variables" else ""):
                yield node, error, Entry(message.format(key=key, wanted=wanted), first_sentence(node))


def _model(node: ast.AST) -> str | None:
    """Return the class in `MODELS` from which a class inherits, or None."""
    bases = {name_of(base) for base in node.bases} if isinstance(node, ast.ClassDef) else set()
    return next(iter({MODEL_OF.get(name, name) for name in bases} & set(MODELS)), None)


def _described(model: ast.ClassDef, module: Module, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the description of each field of a model that has a description."""
    for field in model.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Call):
            said = {keyword.arg: Texts(module, None).of(keyword.value)[0] for keyword in field.value.keywords}
            key = name_of(field.target)
            if "description" in said:
                yield said.get("alias") or (prefix + key.upper() if prefix else key), said["description"]


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """Yield all nodes, each with the classes and functions that enclose it; the outermost comes first."""
    todo: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while todo:
        node, around = todo.pop()
        yield node, around
        if is_function(node) or isinstance(node, ast.ClassDef):
            around = [*around, node]
        todo += [(child, around) for child in ast.iter_child_nodes(node)]


def _function(around: list[ast.AST]) -> Function | None:
    """Return the innermost function among the enclosing nodes, or None."""
    return next((node for node in reversed(around) if is_function(node)), None)


def _errors(call: ast.Call, around: list[ast.AST], module: Module) -> list[str]:
    """Return the names of the errors that a call may create; a called local variable may hold one of two classes."""
    match call.func:
        case ast.Name(id="ValueError"):
            return [MODELS[base][0] for base in filter(None, map(_model, around))]
        case ast.Name(id=name):
            values = assigned_to(name, _function(around) or module.tree)
            choices = [node for node in values if isinstance(node, ast.IfExp)]
            return [name_of(part) for choice in choices for part in (choice.body, choice.orelse)] or [name]
        case ast.Attribute(value=ast.Name(id="web"), attr=name):
            return [name]
        case _:
            return []


def _messages(name: str, call: ast.Call, module: Module, texts: Texts) -> list[str]:
    """Return the messages that the error created by a call may have."""
    if name in MAKERS:
        _, maker = module.function(name)
        names = [arg.arg for arg in maker.args.args]
        values = variants(map(texts.of, call.args))
        return [MAKERS[name][1].format(**dict(zip(names, each, strict=False))) for each in values]
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
    """Return the first sentence of the nearest docstring, which may be that of the only caller or of the module."""
    functions = [node for node in reversed(around) if is_function(node)]
    nodes = [*functions, *_callers(module, functions), *reversed(around), module.tree]
    return next(filter(None, map(first_sentence, nodes)), "").replace("|", r"\|")


def _callers(module: Module, functions: list[Function]) -> list[Function]:
    """Return the direct and indirect callers of functions within a module, as long as each function has only one."""
    found = list(functions)
    for function in found:
        match module.callers.get(function.name, []):
            case [caller] if caller not in found:
                found.append(caller)
    return found[len(functions) :]


if __name__ == "__main__":
    main()
