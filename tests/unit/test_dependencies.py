"""Tests that the packages of the group ``run`` are enough for a local hub, because `make up` installs no others."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spawner_config.settings import ROOT

IMPORT = (
    "import json, sys, hub.up, spawner_config.local, tests.demo, farandole.serving.command; "
    "print(json.dumps(sorted(sys.modules)))"
)
OURS = {"farandole"}
OPTIONAL = {"_brotli", "blinker", "brotli", "pip", "regex", "setuptools"}
"""Packages that others import if they are installed."""


def installed_with(requirements: list[str]) -> set[str]:
    """Return the names of the distributions that pip installs for these requirements."""
    found: set[tuple[str, str]] = set()
    wanted = [Requirement(each) for each in requirements]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            more = map(Requirement, distribution(name).requires or [])
            wanted += [one for one in more if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_a_local_hub_and_the_demo_import_only_packages_of_the_group_run() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    allowed = installed_with([each for each in groups["run"] if isinstance(each, str)]) | OURS
    printed = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, check=True, capture_output=True, text=True)
    modules = {name.split(".")[0] for name in json.loads(printed.stdout)}
    owners = packages_distributions()
    missing = {
        name: owners[name]
        for name in modules & set(owners)
        if not {canonicalize_name(each) for each in owners[name]} & allowed and name not in OPTIONAL
    }
    assert missing == {}


def test_the_package_offers_no_horovod_that_does_not_build() -> None:
    """Only a wheel that images/horovod/build_wheel.py built works with current versions of torch."""
    project = tomllib.loads((ROOT / "extension" / "pyproject.toml").read_text())["project"]
    offered = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    assert not [one for one in offered if Requirement(one).name == "horovod"]
