"""Tests that README links to existing files, and that README and docs name existing make targets and settings.

Sphinx checks the links within docs/.
"""

from __future__ import annotations

import re

import pytest

from spawner_config.settings import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
COMMAND = re.compile(r"(?:`|^|sudo )make ([a-z][a-z-]*)", re.MULTILINE)
SETTING = re.compile(r"\bFARANDOLE_[A-Z_]*[A-Z]\b")
FIELD = re.compile(r"^    ([a-z_]+): ", re.MULTILINE)
SOURCES = ("docker-compose.yml", ".env.example", "hub", "spawner_config", "extension/farandole", "images")


def test_the_readme_fits_on_two_pages_and_links_to_files_that_exist() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    assert [link for link in LINK.findall(text) if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_make_targets_that_exist(page) -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(COMMAND.findall(page.read_text(encoding="utf-8"))) <= targets


def test_pages_name_settings_that_the_code_reads() -> None:
    texts = sources()
    known = set().union(*(SETTING.findall(text) for text in texts))
    # The field `x` of a settings model is read from the variable FARANDOLE_X.
    fields = set().union(*(FIELD.findall(text) for text in texts))
    named = set().union(*(SETTING.findall(page.read_text(encoding="utf-8")) for page in PAGES))
    assert {name for name in named - known if name.removeprefix("FARANDOLE_").lower() not in fields} <= {
        "FARANDOLE_OAUTH"
    }


def sources() -> list[str]:
    files = [path for name in SOURCES for path in [ROOT / name, *(ROOT / name).rglob("*")] if path.is_file()]
    kinds = {".py", ".yml", ".yaml", ".example", ".toml"}
    return [path.read_text(encoding="utf-8") for path in files if path.suffix in kinds]
