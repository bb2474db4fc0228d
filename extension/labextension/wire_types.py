"""Translates the types of the messages between the notebook server and the page from Python to TypeScript."""

from __future__ import annotations

import ast
import json

NAMES = {"str": "string", "int": "number", "float": "number", "bool": "boolean", "Any": "unknown"}


def typescript(*sources: str) -> str:
    """Return the TypeScript types for the sources of Python modules with only typed dictionaries and type aliases."""
    lines = ["/** Written by build.py from the modules wire*.py in server/panel. */", ""]
    for node in (node for source in sources for node in ast.parse(source).body):
        match node:
            case ast.ClassDef(name=name):
                lines += [*_comment(node), f"export interface {name}{_extends(node)} {{", *_keys(node), "}", ""]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as meaning):
                lines += [f"export type {name} = {_type(meaning)};", ""]
    return "\n".join(lines)


def _comment(node: ast.ClassDef) -> list[str]:
    text = ast.get_docstring(node) or ""
    return ["/**", *(f" * {line}".rstrip() for line in text.split("\n")), " */"]


def _extends(node: ast.ClassDef) -> str:
    bases = [name for base in node.bases if (name := ast.unparse(base)) != "TypedDict"]
    return f" extends {', '.join(bases)}" if bases else ""


def _keys(node: ast.ClassDef) -> list[str]:
    keys = [key for key in node.body if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)]
    return [f"  {ast.unparse(key.target)}: {_type(key.annotation)};" for key in keys]


def _type(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return NAMES.get(name, name)
        case ast.Constant(value=value):
            return json.dumps(value)
        case ast.BinOp(left=left, right=right):
            return f"{_type(left)} | {_type(right)}"
        case ast.Subscript(value=ast.Name(id=generic), slice=argument):
            return _generic(generic, argument)
    msg = f"no TypeScript is known for {ast.unparse(node)}"
    raise TypeError(msg)


def _generic(name: str, argument: ast.expr) -> str:
    arguments = argument.elts if isinstance(argument, ast.Tuple) else [argument]
    types = [_type(one) for one in arguments]
    if name == "list":
        return f"({types[0]})[]" if "|" in types[0] else f"{types[0]}[]"
    return f"Record<{', '.join(types)}>" if name == "dict" else " | ".join(types)
