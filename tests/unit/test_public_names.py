"""Tests for the public names of `import farandole as fd`. A change to these names affects every user."""

import subprocess
import sys

import farandole
import pytest

NAMES = [
    "Cluster",
    "Elastic",
    "Endpoint",
    "Snapshots",
    "checkpoint",
    "clip_grad_norm_",
    "config",
    "dataset",
    "deferred",
    "device",
    "elastic",
    "load_model",
    "load_run",
    "load_runs",
    "load_weights",
    "local_rank",
    "local_size",
    "pipeline",
    "prepare",
    "rank",
    "report",
    "result",
    "save_model",
    "size",
    "state",
    "streams",
    "sync",
    "track",
]


def test_the_public_names_are_unchanged():
    assert farandole.__all__ == NAMES
    assert dir(farandole) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_docstring(name):
    assert getattr(farandole, name).__doc__


def test_any_other_name_raises_an_attribute_error():
    with pytest.raises(AttributeError, match="'farandole' has no attribute 'nope'"):
        _ = farandole.nope


def test_a_misspelled_name_gets_a_suggestion():
    with pytest.raises(AttributeError, match=r"no attribute 'repport'\. Did you mean 'report'\?$"):
        _ = farandole.repport


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, farandole; print([n for n in ('torch', 'horovod', 'aiohttp', 'IPython') if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
