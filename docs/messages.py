"""Finds the texts that an expression in source code may have, from its syntax tree."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

MOST_VARIANTS = 8
"""The maximum of texts for one expression; each conditional part doubles them."""
MOST_CALLERS = 4
WORD = re.compile(r"[A-Za-z]{2,}")
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
CONVERSIONS = {"repr", "str", "sorted", "list", "tuple", "round", "max", "min", "int", "float", "filter", "map"}
"""Functions that change only the form of a value."""


@dataclass(frozen=True)
class Module:
    """The syntax tree of one file."""

    tree: ast.Module

    @classmethod
    def read(cls, path: Path) -> Module:
        """Parse a file."""
        return cls(ast.parse(path.read_text(encoding="utf-8")))

    @cached_property
    def functions(self) -> dict[str, Function]:
        """All functions and methods, by name."""
        return {node.name: node for node in ast.walk(self.tree) if is_function(node)}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """The values of the module's constants, by name."""
        found = {}
        for node in self.tree.body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Tuple)
                and isinstance(node.value, ast.Tuple)
            ):
                found |= zip(map(name_of, node.targets[0].elts), node.value.elts, strict=False)
            elif isinstance(node, ast.Assign):
                found[name_of(node.targets[0])] = node.value
        return {name: value for name, value in found.items() if name.isupper() and is_text(value)}

    @cached_property
    def callers(self) -> dict[str, list[Function]]:
        """The callers of each function and method within this module, by the name of the callee."""
        found = defaultdict(list)
        for function in self.functions.values():
            for name in {name_of(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}:
                if name != function.name:
                    found[name].append(function)
        return found


@dataclass(frozen=True, kw_only=True)
class Names:
    """The functions and constants that names refer to, in a module or elsewhere."""

    functions: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)

    @classmethod
    def shared(cls, modules: Iterable[Module]) -> Names:
        """Return the names that have a single meaning in all modules."""
        modules = list(modules)
        return cls(
            functions=_unambiguous(module.functions for module in modules),
            constants=_unambiguous(module.constants for module in modules),
        )

    def within(self, module: Module) -> Names:
        """Return the names as a module sees them."""
        return Names(functions={**self.functions, **module.functions}, constants={**self.constants, **module.constants})


class Texts:
    """The texts that expressions of one function may have, with the names of unknown values in braces."""

    def __init__(self, names: Names, function: Function | None, open_names: frozenset[str] = frozenset()) -> None:
        self._names = names
        self._function = function
        self._open = open_names

    def of_all(self, nodes: list[ast.expr]) -> list[str]:
        """Return the texts that several expressions make, with a space between two of them."""
        texts = (" ".join(parts) for parts in product(*map(self.of, nodes)))
        return [" ".join(text.split()) for text in texts][:MOST_VARIANTS]

    def of(self, node: ast.expr) -> list[str]:
        """Return all texts that an expression may have."""
        match node:
            case ast.JoinedStr(values=values):
                found = _joined([self.of(value) for value in values])
            case ast.FormattedValue(value=value):
                found = self.of(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                found = _joined([self.of(left), self.of(right)])
            case ast.IfExp(body=body, orelse=other):
                found = [*self.of(body), *self.of(other)]
            case ast.Constant(value=str() | int() | float() as value):
                found = [f"{value:g}" if isinstance(value, float) else str(value)]
            case _:
                found = self._of_name(node)
        return found or [placeholder(node)]

    def _of_constant(self, name: str, open_names: frozenset[str]) -> list[str]:
        value = self._names.constants.get(name)
        return Texts(self._names, None, open_names).of(value) if value is not None else []

    def _of_name(self, node: ast.expr) -> list[str]:
        """Return the texts of a variable, a constant or a function's result; an empty list for other expressions."""
        name = name_of(node.func) if isinstance(node, ast.Call) else name_of(node)
        if name in self._open:
            return []
        inner = frozenset({*self._open, name})
        match node:
            case ast.Name():
                assigned = _with_words(Texts(self._names, self._function, inner), assigned_to(name, self._function))
                return assigned or self._of_constant(name, inner)
            case ast.Call(func=ast.Name()) if name in self._names.functions:
                function = self._names.functions[name]
                return _with_words(Texts(self._names, function, inner), _returned(function))
            case _:
                return []


def assigned_to(name: str, function: Function | None) -> list[ast.expr]:
    """Return the expressions that a function assigns to a name."""
    nodes = ast.walk(function) if function is not None else ()
    assignments = (node for node in nodes if isinstance(node, ast.Assign))
    return [node.value for node in assignments if any(name_of(target) == name for target in node.targets)]


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is a text or a number; the text may contain values."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and node.value is not None)


def has_words(text: str) -> bool:
    """Return whether a text has words outside of its placeholders."""
    return WORD.search(PLACEHOLDER.sub("", text)) is not None


def filled(text: str, args: Iterable[ast.expr]) -> str:
    """Replace ``%s`` and ``%r`` by the names of arguments."""
    for arg in args:
        text = re.sub(r"%[sr]", placeholder(arg), text, count=1)
    return text


def placeholder(node: ast.expr) -> str:
    """Return a short name of a value, in braces."""
    return f"{{{_short(node)}}}"


def _short(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr="__name__"):
            short = "type"
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str() as name):
            short = name.strip("_")
        case ast.Call(func=ast.Name(id="len"), args=[value]):
            short = f"number of {_short(value)}"
        case _:
            inner = _inner(node)
            short = _short(inner) if inner is not None else "..."
    return short


def _inner(node: ast.expr) -> ast.expr | None:
    """Return the part of an expression that describes it best."""
    match node:
        case ast.Call(func=ast.Attribute(attr="join" | "get"), args=[inner, *_]):
            pass
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "rstrip" | "lower")):
            pass
        case ast.Call(func=ast.Name(id=name), args=[*_, inner]) if name in CONVERSIONS:
            pass
        case ast.Call(func=inner) | ast.BinOp(left=inner) | ast.BoolOp(values=[inner, *_]):
            pass
        case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner):
            pass
        case ast.Subscript(value=inner) | ast.Await(value=inner) | ast.FormattedValue(value=inner):
            pass
        case _:
            inner = None
    return inner


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, or an empty string."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_function(node: ast.AST) -> bool:
    """Return whether a node defines a function."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def first_sentence(node: ast.AST) -> str:
    """Return the first sentence of a docstring, or an empty string."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split()).replace("``", "`")
    return re.split(r"(?<=[.])\s+(?=[A-Z])", paragraph)[0]


def _joined(parts: list[list[str]]) -> list[str]:
    return ["".join(texts) for texts in product(*parts)][:MOST_VARIANTS]


def _with_words(texts: Texts, values: Iterable[ast.expr]) -> list[str]:
    found = [text for value in values for text in texts.of(value)]
    return found if all(map(has_words, found)) else []


def _returned(function: Function) -> Iterator[ast.expr]:
    returns = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
    return (value for value in returns if value is not None)


def _unambiguous(tables: Iterable[dict]) -> dict:
    found = defaultdict(dict)
    for table in tables:
        for name, value in table.items():
            found[name][ast.dump(value)] = value
    return {name: next(iter(values.values())) for name, values in found.items() if len(values) == 1}
