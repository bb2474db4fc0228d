"""Digests of functions, classes, values and Dask data frames that are equal in each process, unlike those of pickles.

- The digest of a function or a class of the notebook covers its bytecode, defaults, closure, and the values of the
  notebook that it uses. It leaves out the names and lines of files, so that a cell has the same digest in a new kernel.
  The same is true of modules that are registered with ``cloudpickle.register_pickle_by_value``.
- That of a function, a class or a module of the user covers the source file of the module, and those of the user's
  modules from which it has taken functions, classes and modules.
- That of a function of an installed package covers its bytecode only, and that of a class of one its name only.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

PLAIN = (bool, int, float, complex, str, type(None), type(...))
WITHOUT_MEANING = frozenset(
    {"__dict__", "__doc__", "__firstlineno__", "__module__", "__static_attributes__", "__weakref__", "_abc_impl"}
)
"""Attributes of a class that do not change what it computes, or that have the position of its code."""
DESCRIPTORS = (property, staticmethod, classmethod)
NAMED = (FunctionType, type, ModuleType)
"""Types whose contents are added to a digest only once, because such objects may refer to each other."""
PICKLED_BY_STATE = object.__reduce_ex__, object.__reduce__
"""The methods of types whose instances are pickled as their attributes."""
PROTOCOL = 4
"""The version of pickle whose reduced form of an object has its arguments and its attributes."""
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders with packages."""
LIBRARIES = (*(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")), Path(__file__).parents[1])
"""The folders of the standard library and of this package."""
PERSISTED = "FromGraph"
"""The type of Dask's expression for a data frame whose partitions are in the memory of the ranks."""


def digest(value: Any) -> str:
    """Return the SHA-256 digest of a value. Raises the errors of pickle for an object that cannot be pickled."""
    return _Digest({}).whole(value)


class _Digest:
    """Computes one digest.

    Functions, classes and modules have numbers in the order in which they are found, and their contents follow later.
    Many of them can refer to each other, so their contents are in a digest only once.
    """

    def __init__(self, opened: Mapping[int, int]) -> None:
        self._open = dict(opened)
        """The ids of the objects that contain the current one, which may refer to them, and their levels."""
        self._named: list[Any] = []
        self._numbers: dict[int, int] = {}
        """The numbers of functions, classes and modules, by their ids."""

    def whole(self, value: Any) -> str:
        """Return the digest of a value with the functions, classes and modules that it uses."""
        first = self.of(value)
        # The contents may add more of them.
        return _hashed([first, *(_hashed([type(one).__qualname__, *self._parts_of_named(one)]) for one in self._named)])

    def of(self, value: Any) -> str:
        if isinstance(value, NAMED):
            return _hashed([f"number {self._number(value)}"])
        if id(value) in self._open:
            return _hashed([f"level {self._open[id(value)]}"])
        self._open[id(value)] = len(self._open)
        try:
            return _hashed([type(value).__qualname__, *self._parts(value)])
        finally:
            del self._open[id(value)]

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._named)
            self._named.append(value)
        return self._numbers[id(value)]

    def _parts(self, value: Any) -> Iterator[str | bytes]:
        if isinstance(value, PLAIN):
            yield repr(value)
        elif isinstance(value, bytes | bytearray):
            yield bytes(value)
        elif isinstance(value, Mapping):
            yield from (self.of(one) for item in value.items() for one in item)
        elif isinstance(value, list | tuple):
            yield from map(self.of, value)
        elif isinstance(value, set | frozenset):
            # The iteration order of sets, and so the numbers, would differ between processes.
            yield from sorted(_Digest(self._open).whole(one) for one in value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            yield from (str(value.dtype), str(value.shape), value.tobytes())
        elif _is_tensor(value):
            yield from (str(value.dtype), str(tuple(value.shape)), _bytes_of(value))
        else:
            yield from self._parts_of_object(value)

    def _parts_of_object(self, value: Any) -> Iterator[str | bytes]:
        if isinstance(value, CodeType):
            yield value.co_code
            yield from map(self.of, (value.co_consts, value.co_names, value.co_varnames, value.co_freevars))
        elif isinstance(value, functools.partial):
            yield from map(self.of, (value.func, value.args, value.keywords))
        elif isinstance(value, MethodType):
            yield from map(self.of, (value.__func__, value.__self__))
        elif isinstance(value, DESCRIPTORS):
            yield from (self.of(getattr(value, name, None)) for name in ("fget", "fset", "__func__"))
        elif inspect.ismemberdescriptor(value):
            yield value.__name__
        else:
            yield from self._parts_of_instance(value)

    def _parts_of_named(self, value: Any) -> Iterator[str | bytes]:
        if isinstance(value, ModuleType):
            yield from self._parts_of_module(value)
        elif isinstance(value, FunctionType):
            yield from self._parts_of_function(value)
        else:
            yield from self._parts_of_class(value)

    def _parts_of_function(self, function: FunctionType) -> Iterator[str | bytes]:
        yield function.__qualname__
        yield from map(self.of, (function.__code__, function.__defaults__, function.__kwdefaults__))
        yield self.of(_closure(function))
        if _is_by_value(function):
            there = function.__globals__
            yield self.of({name: there[name] for name in sorted(_globals(function.__code__)) if name in there})
        else:
            yield self.of(sys.modules[function.__module__])

    def _parts_of_class(self, kind: type) -> Iterator[str | bytes]:
        yield kind.__qualname__
        if _is_by_value(kind):
            yield from map(self.of, kind.__bases__)
            yield self.of({name: one for name, one in vars(kind).items() if name not in WITHOUT_MEANING})
        else:
            yield self.of(sys.modules[kind.__module__])

    def _parts_of_module(self, module: ModuleType) -> Iterator[str | bytes]:
        yield module.__name__
        if _is_registered(module.__name__):
            yield self.of({name: one for name, one in sorted(vars(module).items()) if not name.startswith("__")})
        elif file := _own_file(module.__name__):
            with suppress(OSError):
                yield hashlib.sha256(file.read_bytes()).digest()
            yield from map(self.of, _used_modules(module))

    def _parts_of_instance(self, value: Any) -> Iterator[str | bytes]:
        kind: Any = type(value)
        is_plain = (kind.__reduce_ex__, kind.__reduce__) == PICKLED_BY_STATE
        if isinstance(value, Enum):
            yield from map(self.of, (kind, value.name, value.value))
        elif is_plain and hasattr(value, "__dict__"):
            yield from map(self.of, (kind, value.__getstate__()))
        elif is_plain and hasattr(kind, "__slots__"):
            # The pickle would have random numbers for classes of the notebook in the slots.
            yield from map(self.of, (kind, *value.__reduce_ex__(PROTOCOL)[1:3]))
        else:
            if _own_file(kind.__module__):
                yield self.of(sys.modules[kind.__module__])
            yield cloudpickle.dumps(value)


def _is_by_value(value: FunctionType | type) -> bool:
    """Return whether pickles contain the code of a function or a class.

    They do if other processes cannot import it, or if its module is registered for that.
    """
    found: Any = sys.modules.get(value.__module__ or "")
    if found is None or value.__module__ == "__main__" or _is_registered(value.__module__):
        return True
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not value


def _is_registered(module: str) -> bool:
    """Return whether a module, or a package that contains it, is registered to be pickled by value."""
    return any(module == one or module.startswith(f"{one}.") for one in cloudpickle.list_registry_pickle_by_value())


def _own_file(module: str | None) -> Path | None:
    """Return the file of a module of the user, which is neither in an installed package nor in the standard library."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file)
    is_installed = INSTALLED.intersection(path.parts) or any(map(path.is_relative_to, LIBRARIES))
    # Modules that a package makes may have only the name of a file.
    return None if is_installed or not path.is_absolute() else path


def _used_modules(module: ModuleType) -> list[ModuleType]:
    """Return the user's modules from which a module has taken functions, classes and modules."""
    names = set()
    for value in list(vars(module).values()):
        kind = type(value)
        if issubclass(kind, FunctionType | type):
            names.add(str(value.__module__))
        elif issubclass(kind, ModuleType) and not value.__name__.startswith(f"{module.__name__}."):
            # A package has its submodules as attributes as soon as any other module imports them.
            names.add(value.__name__)
    return [sys.modules[name] for name in sorted(names) if _own_file(name)]


def _globals(code: CodeType) -> set[str]:
    """Return the names of the globals that code uses, and the functions in it."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname in {"LOAD_GLOBAL", "LOAD_NAME"}}
    return own.union(*(_globals(one) for one in code.co_consts if isinstance(one, CodeType)))


def _closure(function: FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        # A function may be defined before a variable that it uses.
        with suppress(ValueError):
            found.append(cell.cell_contents)
    return found


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _bytes_of(tensor: Any) -> bytes:
    # NumPy lacks some of the types of torch.
    plain: bytes = tensor.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy().tobytes()
    return plain


def frame_digest(frame: Any) -> str:
    """Return a digest of what a Dask data frame computes. Raises the errors of `digest`.

    Dask's own token has the place of the notebook's functions in files, so it would differ in a new kernel.
    """
    return _expression_digest(frame.expr)


def _expression_digest(expression: Any) -> str:
    kind = type(expression).__name__
    if kind == PERSISTED:
        # The partitions have objects of this process.
        return digest([kind, [str(key) for key in expression.operand("keys")]])
    if not any(map(_has_code, expression.operands)):
        # The name of an expression that reads files covers their times.
        return digest([kind, expression._name])
    return digest([kind, *map(_operand_digest, expression.operands)])


def _has_code(operand: Any) -> bool:
    """Return whether an operand is another expression, or has a function or a class of the notebook or of the user."""
    if isinstance(operand, Mapping):
        return any(map(_has_code, operand.values()))
    if isinstance(operand, list | tuple):
        return any(map(_has_code, operand))
    if isinstance(operand, functools.partial):
        return _has_code((operand.func, operand.args, operand.keywords))
    if isinstance(operand, MethodType):
        return _has_code(operand.__func__)
    if isinstance(operand, FunctionType | type):
        return _is_by_value(operand) or _own_file(operand.__module__) is not None
    return _is_expression(operand)


def _operand_digest(operand: Any) -> str:
    if not _has_code(operand):
        from dask.base import tokenize

        return str(tokenize(operand))
    if isinstance(operand, Mapping):
        return digest({name: _operand_digest(one) for name, one in operand.items()})
    if isinstance(operand, list | tuple):
        return digest([_operand_digest(one) for one in operand])
    return _expression_digest(operand) if _is_expression(operand) else digest(operand)


def _is_expression(operand: Any) -> bool:
    return hasattr(operand, "operands")


def _hashed(parts: Iterable[str | bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big"))
        found.update(data)
    return found.hexdigest()
