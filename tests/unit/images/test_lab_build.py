"""Tests that the JupyterLab extension is built only if its sources change, and that the wheel contains it."""

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
    built = pathlib.Path("../farandole/labextension/package.json")
    built.parent.mkdir(parents=True, exist_ok=True)
    built.write_text(pathlib.Path("src/index.ts").read_text())
"""


class Checkout:
    """A checkout with a few source files, and a fake npm that records its arguments."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.lab, self.calls = folder / "extension" / "labextension", folder / "calls"
        package = folder / "extension" / "farandole"
        self.built = package / "labextension" / "package.json"
        self.wire = package / "server" / "panel" / "wire.py"
        for made in (self.lab / "src", self.wire.parent, folder / "bin"):
            made.mkdir(parents=True)
        for name in ("package.json", "package-lock.json", "tsconfig.json", "src/index.ts"):
            (self.lab / name).write_text(name, encoding="utf-8")
        self.wire.write_text("Numbers: TypeAlias = list[float | None]\n", encoding="utf-8")
        self.wire.with_name("wire_routes.py").write_text("Rank: TypeAlias = int\n", encoding="utf-8")
        self.wire.with_name("wire_hub.py").write_text("Text: TypeAlias = str\n", encoding="utf-8")
        for name in ("build.py", "wire_types.py"):
            shutil.copy(EXTENSION / "labextension" / name, self.lab)
        npm = folder / "bin" / "npm"
        npm.write_text(NPM.format(python=sys.executable, calls=self.calls), encoding="utf-8")
        npm.chmod(0o755)
        path = f"{npm.parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(cache)}

    def build(self, *arguments: str) -> list[str]:
        """Run the build, and return the commands that npm received."""
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


@pytest.mark.parametrize("name", ["lab/src/index.ts", "lab/package-lock.json", "wire"])
def test_a_changed_source_is_built_again(tmp_path: Path, name: str) -> None:
    checkout = Checkout(tmp_path, tmp_path / "cache")
    checkout.build()
    changed = checkout.wire if name == "wire" else checkout.lab / name.removeprefix("lab/")
    changed.write_text("Numbers: TypeAlias = list[float]", encoding="utf-8")
    assert "run build" in checkout.build()


def test_packages_are_installed_once_for_the_same_lock(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, tmp_path / "cache")
    assert checkout.build("--modules") == ["ci --ignore-scripts"]
    assert checkout.build("--modules") == []


def test_the_wheel_contains_the_extension_and_names_its_installer(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(EXTENSION)).build(directory=str(tmp_path), versions=["standard"]))
    with ZipFile(wheel) as archive:
        shared = {name.partition("/data/")[2]: name for name in archive.namelist()}
        lab = "share/jupyter/labextensions/farandole/"
        built = json.loads(archive.read(shared[f"{lab}package.json"]))["jupyterlab"]["_build"]
        assert f"{lab}{built['load']}" in shared
        assert json.loads(archive.read(shared[f"{lab}install.json"]))["packageName"] == "farandole"
        assert not [name for name in archive.namelist() if name.startswith("farandole/labextension/")]


BUNDLED = {"diff", "d3-array", "d3-color", "d3-format", "d3-interpolate", "d3-path", "d3-scale", "d3-shape"}
IN_LAB = {"css-loader", "style-loader", "react", "farandole-tooling", "d3-time", "d3-time-format", "internmap"}


def test_the_bundle_contains_third_party_code_with_its_licences() -> None:
    licences = EXTENSION / "farandole" / "labextension" / "static" / "third-party-licenses.json"
    packages = json.loads(licences.read_text(encoding="utf-8"))["packages"]
    assert {"d3-scale", "d3-shape", "diff"} <= {package["name"] for package in packages} <= BUNDLED | IN_LAB
    assert all(package["extractedText"] for package in packages if package["name"] in BUNDLED)


def test_a_wheel_without_the_extension_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "extension"
    shutil.copytree(EXTENSION, copy, ignore=shutil.ignore_patterns("node_modules", "labextension", "lib"))
    with pytest.raises(FileNotFoundError, match="make setup"):
        next(WheelBuilder(str(copy)).build(directory=str(tmp_path), versions=["standard"]))
