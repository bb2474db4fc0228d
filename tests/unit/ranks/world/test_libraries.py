"""Libraries that need torch.distributed are named on other backends, and do not remember a former world."""

import sys
from types import ModuleType

import pytest
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from farandole.ranks.world.libraries import Libraries


@pytest.fixture
def libraries(monkeypatch, tmp_path):
    """Yield the object that watches imports, in a process that can import an empty package named `lightning`."""
    (tmp_path / "lightning.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lightning", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    join(monkeypatch, "horovod")
    libraries = Libraries()
    libraries.watch_imports()
    libraries.adapt()
    yield libraries
    sys.modules.pop("lightning", None)


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
