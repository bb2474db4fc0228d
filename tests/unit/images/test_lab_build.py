"""The JupyterLab extension is built once for the same sources, and the wheel brings it to where JupyterLab looks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

EXTENSION = Path(__file__).parents[3] / "extension"

NPM = """\
#!{python}
import pathlib, sys
pathlib.Path("{calls}").open("a").write(" ".join(sys.argv[1:3]) + "\\n")
pathlib.Path("node_modules").mkdir(exist_ok=True)
if sys.argv[1:3] == ["run", "build"]:
    built = pathlib.Path("../farandole/labextension")
    built.mkdir(parents=True, exist_ok=True)
    (built / "package.json").write_text(pathlib.Path("src/index.ts").read_text())
"""


class Checkout:
    """A checkout with one source, and an npm that only notes what it is told."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.lab, self.calls = folder / "extension" / "labextension", folder / "calls"
        self.built = folder / "extension" / "farandole" / "labextension" / "package.json"
        static = folder / "extension" / "farandole" / "notebook" / "static"
        for made in (self.lab / "src", static, folder / "bin"):
            made.mkdir(parents=True)
        for name in ("package.json", "package-lock.json", "tsconfig.json", "src/index.ts"):
            (self.lab / name).write_text(name, encoding="utf-8")
        for name in ("chart.js", "dashboard.css"):
            (static / name).write_text(name, encoding="utf-8")
        self.chart = static / "chart.js"
        shutil.copy(EXTENSION / "labextension" / "build.py", self.lab)
        npm = folder / "bin" / "npm"
        npm.write_text(NPM.format(python=sys.executable, calls=self.calls), encoding="utf-8")
        npm.chmod(0o755)
        path = f"{npm.parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(cache)}

    def build(self, *arguments: str) -> list[str]:
        """Run the build and return what npm was told."""
        self.calls.unlink(missing_ok=True)
        command = [sys.executable, str(self.lab / "build.py"), *arguments]
        subprocess.run(command, check=True, env=self.environment, timeout=60)
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []


def test_the_same_sources_are_built_once_in_all_checkouts(tmp_path: Path) -> None:
    first, second = (Checkout(tmp_path / name, tmp_path / "cache") for name in ("first", "second"))
    assert first.build() == ["ci --ignore-scripts", "run build"]
    assert first.build() == []
    assert second.build() == []
    assert second.built.read_text(encoding="utf-8") == "src/index.ts"


@pytest.mark.parametrize("name", ["lab/src/index.ts", "lab/package-lock.json", "chart"])
def test_another_source_is_built_anew(tmp_path: Path, name: str) -> None:
    checkout = Checkout(tmp_path, tmp_path / "cache")
    checkout.build()
    changed = checkout.chart if name == "chart" else checkout.lab / name.removeprefix("lab/")
    changed.write_text("other", encoding="utf-8")
    assert "run build" in checkout.build()


def test_packages_are_installed_once_for_the_same_lock(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, tmp_path / "cache")
    assert checkout.build("--modules") == ["ci --ignore-scripts"]
    assert checkout.build("--modules") == []


def test_the_wheel_brings_the_extension_and_says_who_installed_it(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(EXTENSION)).build(directory=str(tmp_path), versions=["standard"]))
    with ZipFile(wheel) as archive:
        shared = {name.partition("/data/")[2]: name for name in archive.namelist()}
        lab = "share/jupyter/labextensions/farandole/"
        built = json.loads(archive.read(shared[f"{lab}package.json"]))["jupyterlab"]["_build"]
        assert f"{lab}{built['load']}" in shared
        assert json.loads(archive.read(shared[f"{lab}install.json"]))["packageName"] == "farandole"
        assert not [name for name in archive.namelist() if name.startswith("farandole/labextension/")]


def test_what_is_shipped_of_others_is_what_puts_styles_and_components_into_a_page() -> None:
    licences = EXTENSION / "farandole" / "labextension" / "static" / "third-party-licenses.json"
    packages = {package["name"] for package in json.loads(licences.read_text(encoding="utf-8"))["packages"]}
    assert packages <= {"css-loader", "style-loader", "react", "farandole-tooling"}


def test_a_wheel_without_the_extension_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "extension"
    shutil.copytree(EXTENSION, copy, ignore=shutil.ignore_patterns("node_modules", "labextension", "lib"))
    with pytest.raises(FileNotFoundError, match="make setup"):
        next(WheelBuilder(str(copy)).build(directory=str(tmp_path), versions=["standard"]))
