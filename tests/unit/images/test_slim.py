"""Tests for the files that are removed from the environments of images."""

from __future__ import annotations

import shutil
from pathlib import Path

import nacl._sodium
import pytest

from images.slim import main

USED = (
    "kserve/model.py",
    "kubernetes/client/__init__.py",
    "kubernetes/client/api/__init__.py",
    "kubernetes/client/configuration.py",
    "kubernetes/client/models/__init__.py",
    "onnxruntime/capi/onnxruntime_pybind11_state.so",
    "grpc_tools/__init__.py",
)
UNUSED = (
    "PIL/Image.py",
    "pillow.libs/libavif.so",
    "pillow-13.0.0.dist-info/METADATA",
    "kubernetes/aio/client/api/core_v1_api.py",
    "kubernetes/client/api/core_v1_api.py",
    "kubernetes/client/models/v1_pod.py",
    "grpc_tools/_protoc_compiler.cpython-311-x86_64-linux-gnu.so",
    "onnxruntime/capi/libonnxruntime.so.1.32.0",
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    for name in (*USED, *UNUSED):
        path = tmp_path / "lib/python3.11/site-packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def remaining(environment: Path) -> set[str]:
    packages = environment / "lib/python3.11/site-packages"
    found = (path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(packages).as_posix() for path in found}


def test_an_endpoint_keeps_only_what_it_imports(environment: Path) -> None:
    assert main([str(environment), "--serving"]) == 0
    assert remaining(environment) == set(USED)


def test_other_environments_keep_these_packages(environment: Path) -> None:
    assert main([str(environment)]) == 0
    assert remaining(environment) == {*USED, *UNUSED}


def test_only_the_languages_of_jupyterlab_have_locales(environment: Path) -> None:
    locales = environment / "lib/python3.11/site-packages/babel/locale-data"
    locales.mkdir(parents=True)
    kept = {"root", "en", "en_GB", "de", "de_AT", "no", "pt_BR", "zh_Hans_CN", "zh_Hant_TW"}
    for name in (*kept, "ab", "sw", "sw_KE", "kxv_Deva"):
        (locales / f"{name}.dat").touch()
    assert main([str(environment)]) == 0
    assert {path.stem for path in locales.iterdir()} == kept


def test_the_symbols_of_large_libraries_are_removed(environment: Path) -> None:
    library = environment / "lib/python3.11/site-packages/nacl/_sodium.abi3.so"
    library.parent.mkdir()
    shutil.copy(nacl._sodium.__file__, library)
    before = library.read_bytes()
    assert main([str(environment)]) == 0
    after = library.read_bytes()
    assert b".symtab" in before
    assert b".symtab" not in after
    assert len(after) < len(before)
