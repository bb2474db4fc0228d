"""Tests for kernels that know the magics from the start, in a new Python process for each shell."""

import subprocess
import sys

import pytest
from farandole.notebook.autoload import MAGICS
from farandole.notebook.data_sets import DataSetMagics
from farandole.notebook.magics import FarandoleMagics
from farandole.notebook.serving.magics import ServingMagics
from farandole.notebook.snapshots.magics import SnapshotMagics
from traitlets.config.loader import PyFileConfigLoader

from spawner_config.settings import ROOT

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
assert shell.extension_manager.load_extension("farandole.notebook.autoload") is None
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", SHELL + code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_names_are_those_of_the_magics():
    owners = (FarandoleMagics, ServingMagics, SnapshotMagics, DataSetMagics)
    names = {kind: {name for owner in owners for name in owner.magics[kind]} for kind in ("line", "cell")}
    declared = {kind: {name for name, kinds in MAGICS.items() if kind in kinds.split("_")} for kind in ("line", "cell")}
    assert declared == names


def test_a_kernel_starts_without_the_modules_of_the_magics():
    loaded = set(run("print(*set(sys.modules) - before)").split())
    assert {name.split(".")[0] for name in loaded} <= {"farandole", "__future__", "difflib", "argparse"}
    assert "farandole.notebook.magics" not in loaded
    assert not loaded & {"torch", "numpy", "pandas", "aiohttp"}


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("%cluster start?", "%cluster start: "),
        ("%cluster --help list", "%cluster list"),
        ("%runs list", ""),
        ("%load_ext farandole\n%cluster start?", "%cluster start: "),
        ("%cluster?", "Start, inspect, scale and stop the cluster"),
    ],
)
def test_a_magic_works_at_its_first_use(cell, shown, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    printed = run(f"assert shell.run_cell({cell!r}).success")
    assert shown in printed
    assert "already loaded" not in printed


def test_a_cell_magic_loads_the_magics_too():
    assert "there is no cluster yet" in run("shell.run_cell('%%distributed\\n1')")


def test_a_notebook_that_loads_the_magics_itself_keeps_its_cluster():
    code = "shell.run_cell('%cluster start?')\nfirst = shell.magics_manager.registry['FarandoleMagics']\n"
    code += "shell.run_cell('%load_ext farandole')\nassert shell.magics_manager.registry['FarandoleMagics'] is first"
    assert "already loaded" in run(code)


def test_a_run_is_shown_as_a_picture_before_any_magic_is_used():
    code = "from farandole.runs.run import Run\nprint(shell.display_formatter.mimebundle_formatter.lookup_by_type(Run))"
    assert "_run_bundle" in run(code)


@pytest.mark.parametrize(("worker", "extensions"), [("", ["farandole.notebook.autoload"]), ("main-w0", [])])
def test_the_configuration_loads_the_magics_in_notebooks_and_not_on_ranks(worker, extensions, monkeypatch):
    monkeypatch.delenv("FARANDOLE_WORKER", raising=False)
    if worker:
        monkeypatch.setenv("FARANDOLE_WORKER", worker)
    config = PyFileConfigLoader("ipython_kernel_config.py", str(ROOT / "images" / "notebook")).load_config()
    assert config.InteractiveShellApp.extensions.get_value([]) == extensions


def test_images_and_make_setup_install_the_configuration():
    recipe = (ROOT / "images" / "notebook" / "Dockerfile").read_text(encoding="utf-8")
    assert "COPY images/notebook/ipython_kernel_config.py /opt/farandole/venv/etc/ipython/\n" in recipe
    assert "$(VENV)/etc/ipython/ipython_kernel_config.py" in (ROOT / "Makefile").read_text(encoding="utf-8")
