"""Tests for the templates: the notebooks themselves, and the routes that list them and create notebooks from them."""

import ast
import asyncio
import json
from importlib.resources import files
from pathlib import Path

import nbformat
import pytest
from farandole.server.panel import wire_routes
from farandole.server.panel.routes.templates import HUB_START, LOCAL_START, NAMES, notebook
from tornado import web

from tests.panel import PanelHub, panel_server
from tests.unit.server.panel.test_wire import misfit

FOLDER = files("farandole") / "templates"
MOST_BYTES = 200_000


@pytest.fixture
async def server(tmp_path, monkeypatch):
    async with panel_server(tmp_path, monkeypatch, PanelHub()) as server:
        yield server


def code_cells(name):
    return [cell for cell in notebook(name, hub=True)["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def python_of(cell):
    """Return the cell's Python code, without magics."""
    return "\n".join(line for line in source(cell).splitlines() if not line.startswith("%"))


def test_every_file_is_a_template_or_its_data():
    assert {path.name for path in FOLDER.iterdir()} == {*(f"{name}.ipynb" for name in NAMES), "typhoon-tracks.csv"}
    assert all(len(path.read_bytes()) <= MOST_BYTES for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_a_valid_notebook_without_output(name):
    book = nbformat.reads(json.dumps(notebook(name, hub=True)), as_version=4)
    nbformat.validate(book)
    assert [cell.outputs for cell in book.cells if cell.cell_type == "code" and cell.outputs] == []
    assert book.cells[0].source.startswith("# ")
    assert book.cells[0].source.count(". ") + book.cells[0].source.count(".\n") == 2, "three sentences"
    assert "**Your own data:**" in "".join(cell.source for cell in book.cells)
    assert "**Your own model:**" in "".join(cell.source for cell in book.cells)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_has_one_cell_of_parameters_and_gives_them_to_the_ranks(name):
    [cell] = [cell for cell in code_cells(name) if "parameters" in cell["metadata"].get("tags", [])]
    names = [target.id for line in ast.parse(source(cell)).body for target in line.targets]
    [push] = [source(cell) for cell in code_cells(name) if source(cell).startswith("%push")]
    assert ["WORKERS", *push.removeprefix("%push ").split(", ")] == names
    used = {node.id for cell in code_cells(name) for node in ast.walk(ast.parse(python_of(cell))) if is_read(node)}
    assert set(names) - {"WORKERS"} <= used


@pytest.mark.parametrize("name", NAMES)
def test_the_runs_of_a_template_record_all_parameters_with_which_they_train(name):
    [push] = [source(cell) for cell in code_cells(name) if source(cell).startswith("%push")]
    code = "\n".join(ast.unparse(ast.parse(python_of(cell))) for cell in code_cells(name))
    recorded = {}
    for cell in code_cells(name):
        if not source(cell).startswith("%%distributed_train"):
            continue
        run = ast.parse(python_of(cell))
        [call] = [
            node for node in ast.walk(run) if isinstance(node, ast.Call) and ast.unparse(node.func) == "fd.config"
        ]
        recorded |= {ast.unparse(keyword.value): keyword.arg for keyword in call.keywords}
        # A value from `--config` replaces the recorded one, so the cell trains with what `fd.config` returns.
        assert all(ast.unparse(run).count(ast.unparse(keyword.value)) == 1 for keyword in call.keywords)
    assert recorded.keys() == set(push.removeprefix("%push ").split(", "))
    assert all(f"hp['{each}']" in code for each in recorded.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_loops_of_a_template_are_tracked_so_that_the_page_shows_the_time_left(name):
    code = "\n".join(ast.unparse(ast.parse(python_of(cell))) for cell in code_cells(name))
    assert "for epoch in fd.track(range(hp['epochs']), name='epochs'):" in code
    assert code.count("fd.track(") == 2


def is_read(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_starts_its_cluster_where_it_can(name):
    for hub, start in ((True, HUB_START), (False, LOCAL_START)):
        assert json.dumps(notebook(name, hub=hub)).count(start) == 1
        assert json.dumps(notebook(name, hub=hub)).count("%cluster start ") == 1


async def test_the_list_describes_each_template_in_one_sentence(server):
    listed = await server.ask("GET", "templates")
    assert misfit(listed, wire_routes.Templates) is None
    assert [one["name"] for one in listed["templates"]] == list(NAMES)
    assert listed["templates"][0] == {
        "name": "image-classifier",
        "title": "Image classifier",
        "description": "This notebook trains a convolutional network (CNN) to recognize images, on all ranks of a "
        "cluster.",
    }


async def test_a_notebook_gets_an_unused_name_in_the_folder(server):
    root = root_of(server)
    (root / "work").mkdir()
    made = [await server.ask("POST", "templates/plain-ddp", 201, json={"folder": "work"}) for _ in range(2)]
    assert [one["path"] for one in made] == ["work/plain-ddp.ipynb", "work/plain-ddp-1.ipynb"]
    assert misfit(made[0], wire_routes.CreatedNotebook) is None
    saved = json.loads((root / "work/plain-ddp-1.ipynb").read_text(encoding="utf-8"))
    assert saved["cells"] == notebook("plain-ddp", hub=True)["cells"]
    in_root = await server.ask("POST", "templates/plain-ddp", 201, json={"folder": ""})
    assert in_root == {"path": "plain-ddp.ipynb"}


async def test_notebooks_that_are_created_at_the_same_time_get_different_names(server):
    root = root_of(server)
    (root / "plain-ddp.ipynb").symlink_to(root / "nowhere")
    asks = (server.ask("POST", "templates/plain-ddp", 201, json={"folder": ""}) for _ in range(4))
    made = {one["path"] for one in await asyncio.gather(*asks)}
    assert made == {f"plain-ddp-{number}.ipynb" for number in range(1, 5)}
    for path in made:
        assert json.loads((root / path).read_text(encoding="utf-8"))["cells"]
    assert not (root / "nowhere").exists()


async def test_a_notebook_that_cannot_be_saved_leaves_no_file(server, monkeypatch):
    async def full(*_arguments):
        raise web.HTTPError(507, "The disk is full.")

    monkeypatch.setattr(server.app.contents_manager, "save", full)
    await server.ask("POST", "templates/plain-ddp", 507, json={"folder": ""})
    assert not list(root_of(server).glob("*.ipynb"))


async def test_a_folder_that_cannot_be_written_is_named(server, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("farandole.server.panel.routes.templates.create_unused", refuse)
    answer = await server.ask("POST", "templates/plain-ddp", 400, json={"folder": ""})
    assert "nothing can be written to the folder '' (Permission denied)" in answer["message"]


def root_of(server):
    return Path(server.app.root_dir)


@pytest.mark.parametrize("folder", ["gone", "../..", "/../etc", "a\0b", "x" * 5000, "file.txt", "<b>"])
async def test_a_folder_that_is_missing_or_outside_the_root_is_refused(server, folder):
    root = root_of(server)
    (root / "file.txt").touch()
    before = sorted(root.rglob("*"))
    answer = await server.ask("POST", "templates/plain-ddp", 400, json={"folder": folder})
    assert answer["code"] == "invalid"
    assert "there is no folder" in answer["message"]
    assert len(answer["message"]) < 1000
    assert sorted(root.rglob("*")) == before


async def test_an_unknown_template_and_a_wrong_body_are_refused(server):
    answer = await server.ask("POST", "templates/poetry", 404, json={"folder": ""})
    assert answer["code"] == "unknown"
    assert "image-classifier" in answer["message"]
    for body in ({}, {"folder": 3}, {"folder": None}):
        answer = await server.ask("POST", "templates/plain-ddp", 400, json=body)
        assert answer["code"] == "invalid"


async def test_without_a_hub_the_notebook_starts_ranks_on_this_machine(tmp_path, monkeypatch):
    async with panel_server(tmp_path, monkeypatch) as server:
        made = await server.ask("POST", "templates/image-classifier", 201, json={"folder": ""})
        text = await asyncio.to_thread((root_of(server) / made["path"]).read_text, encoding="utf-8")
    assert LOCAL_START in text
