"""Tests that the security model names only tests that exist."""

from __future__ import annotations

import re

from spawner_config.settings import ROOT

PAGE = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
FOLDERS = {"browser", "contract", "docker", "kubernetes", "integration"}
TEST = re.compile(r"`((?:[a-z_]+/)*test_[a-z_]+\.py)`|`(test_[a-z0-9_]+)`")


def test_each_promise_names_a_test_that_exists() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "test_" in line]
    assert len(rows) > 40
    for row in rows:
        texts: list[str] = []
        for path, name in TEST.findall(row):
            if path:
                folder = ROOT / "tests" if path.split("/")[0] in FOLDERS else ROOT / "tests/unit"
                texts.append((folder / path).read_text(encoding="utf-8"))
            else:
                assert any(f"def {name}(" in text for text in texts), (name, row)
        assert texts, row
