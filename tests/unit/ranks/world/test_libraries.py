"""Libraries that need torch.distributed are named on other backends, and do not remember a former world."""

import importlib
import sys
from types import ModuleType

import pytest
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from farandole.ranks.world.libraries import NOTICES, Libraries
from IPython.core.interactiveshell import InteractiveShell

LIGHTNING = {"lightning": "torchmetrics", "pytorch_lightning": "lightning_fabric", "lightning_fabric": "torchmetrics"}
"""The packages of Lightning, with a package that each imports."""


@pytest.fixture
def libraries(monkeypatch, tmp_path):
    """Yield the object that watches imports, in a process with packages named as Lightning's that are nearly empty."""
    for name, imported in LIGHTNING.items():
        (tmp_path / f"{name}.py").write_text(f"import {imported}")
    (tmp_path / "torchmetrics.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in NOTICES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    join(monkeypatch, "horovod")
    libraries = Libraries()
    libraries.watch_imports()
    libraries.adapt()
    yield libraries
    for name in (*LIGHTNING, "torchmetrics"):
        sys.modules.pop(name, None)


@pytest.fixture
def shell():
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def join(monkeypatch, backend, *, rank=0, size=2):
    for name, value in {"BACKEND": backend, "RANK": rank, "SIZE": size}.items():
        monkeypatch.setenv(f"FARANDOLE_{name}", str(value))


def test_the_import_of_a_library_that_needs_torch_is_noticed_once(libraries, capsys):
    import lightning  # noqa: F401

    notice = capsys.readouterr().err
    assert "lightning needs torch.distributed: on backend horovod each rank trains alone" in notice
    assert "--backend torch" in notice
    libraries.find_spec("lightning")
    libraries.find_spec("json")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", LIGHTNING)
def test_libraries_that_lightning_imports_get_no_notice_of_their_own(libraries, capsys, name):
    importlib.import_module(name)
    assert capsys.readouterr().err.count("torch.distributed") == 1
    libraries.notice_imported()
    assert capsys.readouterr().err == ""


def test_the_notice_of_torchmetrics_says_what_its_metrics_cover(libraries, capsys):
    import torchmetrics  # noqa: F401

    notice = capsys.readouterr().err
    assert "torchmetrics needs torch.distributed: on backend horovod `compute()` covers the data of one rank" in notice
    assert "--backend torch" in notice
    assert "trains alone" not in notice
    import lightning  # noqa: F401

    assert "lightning needs torch.distributed: on backend horovod each rank trains alone" in capsys.readouterr().err


def test_each_cell_gives_notice_of_libraries_that_an_earlier_one_has_imported(libraries, monkeypatch, capsys, shell):
    join(monkeypatch, "torch")
    libraries.adapt()
    for _ in range(2):
        libraries.watch_cells()
    shell.run_cell("import lightning")
    assert capsys.readouterr().err == ""
    join(monkeypatch, "horovod")
    libraries.adapt()
    shell.run_cell("pass", silent=True)
    assert capsys.readouterr().err == ""
    shell.run_cell("pass")
    assert capsys.readouterr().err.count("lightning needs torch.distributed") == 1
    shell.run_cell("pass")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "world",
    [
        {"backend": "torch"},
        {"backend": "none"},
        {"backend": "horovod", "size": 1},
        {"backend": "horovod", "rank": 1},
    ],
)
def test_there_is_no_notice_where_the_library_works_or_another_rank_gives_it(libraries, monkeypatch, capsys, world):
    join(monkeypatch, **world)
    libraries.find_spec("accelerate")
    assert capsys.readouterr().err == ""


def test_a_library_that_was_imported_on_another_backend_is_noticed_after_the_change(libraries, monkeypatch, capsys):
    join(monkeypatch, "torch")
    libraries.adapt()
    import lightning  # noqa: F401

    libraries.notice_imported()
    assert capsys.readouterr().err == ""
    for _ in range(2):
        join(monkeypatch, "horovod")
        libraries.adapt()
        libraries.notice_imported()
        libraries.notice_imported()
        assert capsys.readouterr().err.count("lightning needs torch.distributed") == 1
        join(monkeypatch, "torch")
        libraries.adapt()


def test_accelerate_forgets_a_world_only_if_it_has_changed(libraries, monkeypatch):
    for change in ({"backend": "torch"}, {"backend": "torch", "size": 3}, {"backend": "torch", "rank": 1}):
        Accelerator(cpu=True)
        libraries.adapt()
        assert PartialState._shared_state
        join(monkeypatch, **change)
        libraries.adapt()
        assert not PartialState._shared_state
        assert not AcceleratorState._shared_state
        assert not GradientState._shared_state


def test_lightning_learns_whether_the_rank_has_a_prompt(libraries, monkeypatch):
    connector = ModuleType("lightning.fabric.connector")
    connector._IS_INTERACTIVE = True
    monkeypatch.setitem(sys.modules, connector.__name__, connector)
    for interactive in (False, True):
        if interactive:
            monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
        else:
            monkeypatch.delattr(sys, "ps1", raising=False)
        join(monkeypatch, "horovod" if interactive else "torch")
        libraries.adapt()
        assert connector._IS_INTERACTIVE is interactive
