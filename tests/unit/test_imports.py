"""Tests that imports follow the diagram in CONTRIBUTING.md, and that every route of a worker requires a login."""

import ast
import graphlib
import inspect
import logging
import re
from collections import Counter
from pathlib import Path

import farandole
import pytest
from farandole.server.worker import routes
from farandole.server.worker.page import PageHandler
from jupyter_server.base.handlers import APIHandler

ROOT = Path(__file__).parents[2]
PACKAGE = Path(farandole.__file__).parent
PRODUCT = ("extension", "spawner_config", "hub", "images", "docs", "bench")
OURS = {"farandole", "tests", *PRODUCT}
# All modules may import these modules. Each of them may import only the modules before it in this list.
EVERYWHERE = (
    "farandole.protocol",
    "farandole.exceptions",
    "farandole.__version__",
    "farandole.sizes",
    "farandole.times",
    "farandole.hyperparameters",
    "farandole.reading",
    "farandole.frames",
    "farandole.suggestions",
)
ENTRY_POINTS = {"farandole", "farandole.server", "farandole.server.notebook"}
PICTURE = re.compile(r"^(\w[\w/, ]*?) +-> (.+)$", re.MULTILINE)
MOST_MODULES = 14
MOST_LINES = 400


def modules_below(folder, package):
    """Yield the dotted name and the path of each module below a folder. `__init__` modules have the package's name."""
    for path in sorted(folder.rglob("*.py")):
        name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
        yield name.removesuffix(".__init__"), path


MODULES = dict(modules_below(PACKAGE, "farandole"))
for top in PRODUCT[1:]:
    MODULES.update(modules_below(ROOT / top, top))


def dotted(place):
    """Return the dotted name of an entry in the diagram, which is in the repository's root or in `farandole`."""
    name = place.strip().replace("/", ".")
    return name if name.split(".")[0] in OURS else f"farandole.{name}"


def allowed_imports():
    """Return a dict from each package in the diagram to the packages that it may import."""
    rooms = {}
    for left, right in PICTURE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        targets = () if right == "nothing" else tuple(map(dotted, right.split(",")))
        rooms.update(dict.fromkeys(map(dotted, left.split(",")), targets))
    return rooms


ALLOWED = allowed_imports()


def imports_of(path):
    """Yield all names that a module imports, including imports in functions and imports for types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def module_of(name):
    """Return the module of this project to which an imported name belongs, or None if there is no such module."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


def is_below(name, *rooms):
    return any(f"{name}.".startswith(f"{room}.") for room in rooms)


def room_of(module):
    rooms = [room for room in ALLOWED if is_below(module, room)]
    assert rooms, f"the picture in CONTRIBUTING.md lacks the folder of {module}"
    return max(rooms, key=len)


@pytest.mark.parametrize("module", sorted(MODULES.keys() - ENTRY_POINTS))
def test_imports_follow_the_picture(module):
    room = None if module in EVERYWHERE else room_of(module)
    shared = EVERYWHERE[: EVERYWHERE.index(module)] if module in EVERYWHERE else EVERYWHERE
    allowed = (*shared, room, *ALLOWED[room]) if room else shared
    ours = [name for name in imports_of(MODULES[module]) if name.split(".")[0] in OURS]
    assert [name for name in ours if not is_below(name, *allowed)] == []


def test_every_arrow_of_the_picture_stands_for_an_import():
    found = {room: set() for room in ALLOWED}
    for module in MODULES.keys() - ENTRY_POINTS - set(EVERYWHERE):
        found[room_of(module)].update(imports_of(MODULES[module]))
    unused = [
        (room, target)
        for room, targets in ALLOWED.items()
        for target in targets
        if not any(is_below(name, target) for name in found[room])
    ]
    assert unused == []


def test_no_module_imports_itself_indirectly():
    graph = {
        module: {found for name in imports_of(path) if (found := module_of(name)) not in {None, module}}
        for module, path in MODULES.items()
    }
    # `farandole.__getattr__` imports the public names on demand, so these imports cannot form a cycle.
    graph.pop("farandole", None)
    for imported in graph.values():
        imported.discard("farandole")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as exc:
        pytest.fail(f"circle of imports: {' -> '.join(exc.args[1])}")


def product_modules(top):
    """Yield the Python and TypeScript modules below a folder, but no tests, build outputs, `__init__` or `wire.ts`."""
    for path in (ROOT / top).rglob("*"):
        product = not {"node_modules", "test", "lib"} & set(path.relative_to(ROOT).parts)
        if product and path.suffix in {".py", ".ts", ".tsx"} and path.name not in {"__init__.py", "wire.ts"}:
            yield path


@pytest.mark.parametrize("top", PRODUCT)
def test_no_folder_has_too_many_modules(top):
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
        assert issubclass(handler, APIHandler) or handler is PageHandler
        for verb in ("get", "post", "put", "patch", "delete"):
            method = getattr(handler, verb)
            if method.__qualname__.startswith(handler.__name__):
                # A wrapped method requires a login, because `web.authenticated` is the only decorator in these classes.
                source = inspect.unwrap(method)
                assert source is not method, f"{handler.__name__}.{verb} needs no login"
