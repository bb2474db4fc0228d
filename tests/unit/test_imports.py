"""Imports follow the picture in CONTRIBUTING.md, without a circle; every route of a worker's server needs a login."""

import ast
import graphlib
import inspect
import logging
from collections import Counter
from pathlib import Path

import farandole
import pytest
from farandole.server.worker import routes
from jupyter_server.base.handlers import APIHandler

ROOT = Path(__file__).parents[2]
PACKAGE = Path(farandole.__file__).parent
SPAWNERS = ROOT / "spawner_config"
EVERYWHERE = ("farandole.protocol", "farandole.exceptions")
# Each folder imports itself, the modules above and these; the longest matching name applies.
ALLOWED = {
    "farandole": ("farandole.",),
    "farandole.runs": (),
    "farandole.driver": ("farandole.runs", "farandole.server.worker.args", "farandole.server.worker.lifeline"),
    "farandole.notebook": ("farandole.driver", "farandole.runs"),
    "farandole.ranks": ("farandole.runs",),
    "farandole.server": ("farandole.server.panel.load",),
    "farandole.server.journal": (),
    "farandole.server.worker": ("farandole.server.journal", "farandole.server.activity"),
    "farandole.server.panel": ("farandole.driver", "farandole.runs", "farandole.server.worker"),
}
PRODUCT = ("extension", "spawner_config", "hub", "images", "docs", "bench")
MOST_MODULES = 14
MOST_LINES = 400


def modules_below(folder, package):
    """Return each module's dotted name with its path; a package's name stands for its `__init__`."""
    for path in sorted(folder.rglob("*.py")):
        name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
        yield name.removesuffix(".__init__"), path


MODULES = {**dict(modules_below(PACKAGE, "farandole")), **dict(modules_below(SPAWNERS, "spawner_config"))}


def imports_of(path):
    """Yield the names that a module imports anywhere, including imports for types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def module_of(name):
    """Return the module that an imported name belongs to, or None for another project's."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


def room_of(module):
    return max((room for room in ALLOWED if f"{module}.".startswith(f"{room}.")), key=len)


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("farandole")])
def test_imports_point_one_way(module):
    room = room_of(module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0])
    allowed = (*EVERYWHERE, room, *ALLOWED[room]) if module not in EVERYWHERE else ()
    ours = [name for name in imports_of(MODULES[module]) if name.split(".")[0] == "farandole"]
    assert [name for name in ours if not name.startswith(allowed)] == []


@pytest.mark.parametrize("package", ["farandole", "spawner_config"])
def test_no_module_imports_itself_by_way_of_others(package):
    graph = {
        module: {found for name in imports_of(path) if (found := module_of(name)) not in {None, module}}
        for module, path in MODULES.items()
        if module.startswith(package)
    }
    # The public names are imported on demand, see `farandole.__getattr__`.
    graph.pop("farandole", None)
    for imported in graph.values():
        imported.discard("farandole")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as exc:
        pytest.fail(f"circle of imports: {' -> '.join(exc.args[1])}")


def product_modules(top):
    """Yield the modules below a folder, in both languages, without tests and what a build writes."""
    for path in (ROOT / top).rglob("*"):
        product = not {"node_modules", "test", "lib"} & set(path.relative_to(ROOT).parts)
        if product and path.suffix in {".py", ".ts", ".tsx"} and path.name not in {"__init__.py", "wire.ts"}:
            yield path


@pytest.mark.parametrize("top", PRODUCT)
def test_no_folder_has_more_modules_than_a_reader_keeps_in_mind(top):
    counts = Counter(path.parent for path in product_modules(top))
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("top", PRODUCT)
def test_no_module_is_longer_than_a_reader_wants_to_scroll(top):
    counts = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in product_modules(top)}
    assert {path: count for path, count in counts.items() if count > MOST_LINES} == {}


def test_the_hub_and_kernels_do_not_know_the_cluster():
    for module, path in MODULES.items():
        if module.startswith("farandole.driver") and module != "farandole.driver.cluster":
            assert not any(name.startswith("farandole.driver.cluster") for name in imports_of(path)), path


class _WebApp:
    def __init__(self):
        self.handlers = []

    def add_handlers(self, _host, handlers):
        self.handlers += handlers


class _ServerApp:
    base_url = "/user/ada/c-w0/"
    log = logging.getLogger("farandole.tests")

    def __init__(self):
        self.web_app = _WebApp()


def test_every_route_needs_a_login_and_lies_below_ours():
    app = _ServerApp()
    routes.add_routes(app)
    assert app.web_app.handlers
    for path, handler, *_ in app.web_app.handlers:
        assert path.startswith("/user/ada/c-w0/farandole/")
        assert issubclass(handler, APIHandler)
        for verb in ("get", "post", "put", "patch", "delete"):
            method = getattr(handler, verb)
            if method.__qualname__.startswith(handler.__name__):
                # In these classes, only `web.authenticated` wraps methods.
                source = inspect.unwrap(method)
                assert source is not method, f"{handler.__name__}.{verb} needs no login"
