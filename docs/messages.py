"""Finds the texts to which an expression may evaluate, from the syntax tree of the source code."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

MOST_VARIANTS = 8
"""The maximum number of texts for one expression; each conditional expression doubles the number."""
WORD = re.compile(r"[A-Za-z]{2,}")
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
CONVERSIONS = {"repr", "str", "sorted", "list", "tuple", "round", "max", "min", "int", "float", "filter", "map"}
"""Functions that only convert or reorder a value, so that the value's name still describes the result."""


@dataclass(frozen=True, eq=False)
class Module:
    """The syntax tree of a file; ``others`` maps dotted names to the modules from which the file may import."""

    tree: ast.Module
    path: Path = Path()
    others: Mapping[str, Module] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, path: Path, others: Mapping[str, Module]) -> Module:
        """Parse the file at ``path``."""
        return cls(ast.parse(path.read_text(encoding="utf-8")), path, others)

    def function(self, name: str) -> tuple[Module, Function] | None:
        """Return the function with this name and the module that defines it, which may be an imported module."""
        if name in self.functions:
            return self, self.functions[name]
        home, original = self._imported(name)
        return home.function(original) if home else None

    def constant(self, name: str) -> tuple[Module, ast.expr] | None:
        """Return the value of this constant and the module that defines it, which may be an imported module."""
        if name in self.constants:
            return self, self.constants[name]
        home, original = self._imported(name)
        return home.constant(original) if home else None

    def _imported(self, name: str) -> tuple[Module | None, str]:
        home, original = self.imports.get(name, ("", ""))
        return self.others.get(home), original

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """The module and the original name of each imported name."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom) and node.module]
        return {alias.asname or alias.name: (node.module, alias.name) for node in nodes for alias in node.names}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """All functions and methods by their names."""
        return {node.name: node for node in ast.walk(self.tree) if is_function(node)}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """The values of the module's constants by their names."""
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
        """The functions and methods of this module that call a function, by the name of the called function."""
        found = defaultdict(list)
        for function in self.functions.values():
            for name in {name_of(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}:
                if name != function.name:
                    found[name].append(function)
        return found


class Texts:
    """Finds the texts that expressions in a function may have; unknown values appear as names in braces."""

    def __init__(self, module: Module, function: Function | None, open_names: frozenset[str] = frozenset()) -> None:
        self._module = module
        self._function = function
        self._open = open_names

    def of_all(self, nodes: list[ast.expr]) -> list[str]:
        """Return the possible texts of several expressions joined by spaces."""
        texts = (" ".join(parts) for parts in variants(map(self.of, nodes)))
        return [" ".join(text.split()) for text in texts]

    def of(self, node: ast.expr) -> list[str]:
        """Return all texts that an expression may have, or a placeholder if they are unknown."""
        match node:
            case ast.JoinedStr(values=values):
                found = ["".join(parts) for parts in variants(map(self.of, values))]
            case (
                ast.FormattedValue(value=value)
                | ast.Call(func=ast.Name(id="str"), args=[value])
                | ast.Await(value=value)
            ):
                found = self.of(value)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=" " | "\n"), attr="join"), args=[inner]) if (
                isinstance(inner, ast.Name | ast.Tuple)
            ):
                found = self.of(inner)
            case ast.Tuple(elts=values):
                found = self.of_all(values)
            case ast.BinOp(left=left, op=ast.Add(), right=right) if not is_number(right):
                found = ["".join(parts) for parts in variants([self.of(left), self.of(right)])]
            case ast.IfExp(body=body, orelse=other):
                found = [*self.of(body), *self.of(other)]
            case ast.Constant(value=str() | int() | float() as value) if not isinstance(value, bool):
                found = [f"{value:g}" if isinstance(value, float) else str(value)]
            case _:
                found = self._of_name(node)
        return found or [placeholder(node)]

    def _of_name(self, node: ast.expr) -> list[str]:
        """Return the texts of a variable, a constant or a function's result, or an empty list for other expressions."""
        name = name_of(node.func) if isinstance(node, ast.Call) else name_of(node)
        if name in self._open:
            return []
        inner = frozenset({*self._open, name})
        match node:
            case ast.Name():
                assigned = assigned_to(name, self._function or self._module.tree)
                found = _with_words(Texts(self._module, self._function, inner), assigned)
                return found or self._of_constant(name, inner)
            case ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name(id="self"))):
                return self._of_result(name, inner)
            case _:
                return []

    def _of_constant(self, name: str, open_names: frozenset[str]) -> list[str]:
        match self._module.constant(name):
            case (home, value):
                return Texts(home, None, open_names).of(value)
            case _:
                return []

    def _of_result(self, name: str, open_names: frozenset[str]) -> list[str]:
        match self._module.function(name):
            case (home, function):
                return _with_words(Texts(home, function, open_names), returned(function))
            case _:
                return []


def assigned_to(name: str, scope: Function | ast.Module) -> list[ast.expr]:
    """Return the expressions that a function or a module assigns to a name."""
    parts = [scope] if is_function(scope) else [node for node in scope.body if isinstance(node, ast.Assign | ast.If)]
    nodes = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Assign | ast.NamedExpr)]
    return [node.value for node in nodes if name in map(name_of, getattr(node, "targets", None) or [node.target])]


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is an f-string or a literal other than None."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and node.value is not None)


def is_number(node: ast.expr) -> bool:
    """Return whether an expression is a literal number."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def has_words(text: str) -> bool:
    """Return whether a text contains words outside its placeholders."""
    return WORD.search(PLACEHOLDER.sub("", text)) is not None


def filled(text: str, args: Iterable[ast.expr]) -> str:
    """Replace each ``%s`` and ``%r`` with the name of the next argument, in braces."""
    for arg in args:
        text = re.sub(r"%[sr]", placeholder(arg), text, count=1)
    return text


def placeholder(node: ast.expr) -> str:
    """Return a short name for the value of an expression, in braces."""
    return f"{{{_short(node)}}}"


def _short(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr="__name__"):
            short = "type"
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str() as name):
            short = name.strip("_")
        case ast.Call(func=ast.Name(id="len"), args=[value]):
            short = f"number of {_short(value)}"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right) if is_number(right):
            short = f"{_short(left)} {'+' if isinstance(sign, ast.Add) else '-'} {right.value}"
        case _:
            inner = _inner(node)
            short = _short(inner) if inner is not None else "..."
    return short


def _inner(node: ast.expr) -> ast.expr | None:
    """Return the part of an expression whose name best describes the value, or None."""
    match node:
        case ast.Call(func=ast.Attribute(attr="join" | "get"), args=[inner, *_]):
            pass
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "rstrip" | "lower" | "decode")):
            pass
        case ast.Call(func=ast.Name(id="getattr"), args=[_, inner, *_]):
            pass
        case ast.Call(func=ast.Name(id=name), args=[*_, inner]) if name in CONVERSIONS:
            pass
        case ast.Call(func=inner) | ast.BinOp(left=inner) | ast.BoolOp(values=[inner, *_]):
            pass
        case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner):
            pass
        case ast.Subscript(slice=ast.Constant(value=str()) as inner) | ast.Subscript(value=inner):
            pass
        case ast.Await(value=inner) | ast.FormattedValue(value=inner) | ast.Starred(value=inner):
            pass
        case _:
            inner = None
    return inner


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, or an empty string for other expressions."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_function(node: ast.AST) -> bool:
    """Return whether a node defines a function."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def first_sentence(node: ast.AST) -> str:
    """Return the first sentence of a node's docstring, or an empty string if there is no docstring."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split()).replace("``", "`")
    return re.split(r"(?<=[.])\s+(?=[A-Z])", paragraph)[0]


def variants(parts: Iterable[list[str]]) -> list[tuple[str, ...]]:
    """Return all combinations of the parts' texts; if there are too many, return only the longest one."""
    parts = list(parts)
    few = prod(map(len, parts)) <= MOST_VARIANTS
    return list(product(*parts)) if few else [tuple(max(texts, key=len) for texts in parts)]


def _with_words(texts: Texts, values: Iterable[ast.expr]) -> list[str]:
    found = [text for value in values for text in texts.of(value)]
    return found if all(map(has_words, found)) else []


def returned(function: Function) -> list[ast.expr]:
    """Return the expressions that a function returns, except None."""
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    return [value for value in values if not (isinstance(value, ast.Constant) and value.value is None)]
