"""Sphinx directives that generate reference pages from settings files, the magics and the Makefile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"# --- (?P<title>.*?) ---")
SETTING = re.compile(r"(?P<name>[A-Z][A-Z_]*)=(?P<value>.*)")
TARGET = re.compile(r"(?P<name>[a-z-]+):.*?## (?P<effect>.*)")
MAGICS = {
    "cluster": "%cluster",
    "distributed": "%%distributed",
    "distributed_train": "%%distributed_train",
    "push": "%push",
    "pull": "%pull",
    "runs": "%runs",
    "models": "%models",
    "serve": "%serve",
    "snapshot": "%snapshot",
    "dataset": "%dataset",
}


class MarkdownDirective(SphinxDirective):
    """A directive whose content is the Markdown that the method `markdown` generates."""

    def markdown(self) -> Iterator[str]:
        """Yield the lines of Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the parsed Markdown."""
        content = nodes.Element()
        lines = list(self.markdown())
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), 0, content, match_titles=True)
        return content.children


class SettingsDirective(MarkdownDirective):
    """Lists the variables of a settings file, with their defaults and the comments above them."""

    required_arguments = 1

    def markdown(self) -> Iterator[str]:
        """Yield a heading for each section and a definition for each group of variables that share a comment."""
        path = ROOT / self.arguments[0]
        self.env.note_dependency(str(path))
        yield from settings_markdown(path.read_text(encoding="utf-8"))


class MagicsDirective(MarkdownDirective):
    """Lists the magics and their arguments."""

    def markdown(self) -> Iterator[str]:
        """Yield a heading, the docstring and a table for each magic."""
        from farandole.notebook.data_sets import DataSetMagics
        from farandole.notebook.magics import FarandoleMagics
        from farandole.notebook.serving.magics import ServingMagics
        from farandole.notebook.snapshots.magics import SnapshotMagics

        owners = (FarandoleMagics, ServingMagics, SnapshotMagics, DataSetMagics)
        for name, shown in MAGICS.items():
            owner = next(one for one in owners if {name, f"{name}_magic"} & vars(one).keys())
            magic = getattr(owner, f"{name}_magic", None) or getattr(owner, name)
            yield from ("", f"## `{shown}`", "", magic.parser.description.strip(), "")
            yield from ("| argument | meaning |", "| --- | --- |")
            yield from (_row(action) for action in magic.parser._actions)


class TargetsDirective(MarkdownDirective):
    """Lists the targets of the Makefile, with the descriptions that `make help` shows."""

    def markdown(self) -> Iterator[str]:
        """Yield a table of the targets."""
        path = ROOT / "Makefile"
        self.env.note_dependency(str(path))
        yield from ("| target | effect |", "| --- | --- |")
        for line in path.read_text(encoding="utf-8").splitlines():
            if target := TARGET.fullmatch(line):
                yield f"| `make {target['name']}` | {target['effect']} |"


def settings_markdown(text: str) -> Iterator[str]:
    """Yield the Markdown for the text of a settings file.

    A line ``# --- title ---`` begins a section, and the comment lines directly above variables describe them. Lines
    above the first section are skipped, because they do not describe a variable.
    """
    comment: list[str] = []
    names: list[str] = []
    started = False
    for line in [*text.splitlines(), ""]:
        section, setting = SECTION.fullmatch(line), SETTING.fullmatch(line)
        if names and not setting:
            yield from ("", ", ".join(names), f": {' '.join(comment)}", "")
            comment, names = [], []
        if section:
            yield from ("", f"### {section['title']}", "")
            comment, started = [], True
        elif setting and started:
            names.append(_setting(setting["name"], setting["value"]))
        elif line.startswith("#") and started:
            comment.append(_comment(line.removeprefix("#").strip()))


def _comment(line: str) -> str:
    return f"`{line}`" if SETTING.fullmatch(line) else line


def _setting(name: str, value: str) -> str:
    return f"`{name}` (default: `{value}`)" if value else f"`{name}` (default: empty)"


def _row(action: argparse.Action) -> str:
    flags = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.dest}`"
    value = f" `{action.metavar or action.dest.upper()}`" if action.option_strings and action.nargs != 0 else ""
    return f"| {flags}{value} | {(action.help or '').replace('%%', '%')} |"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("settings", SettingsDirective)
    app.add_directive("magics", MagicsDirective)
    app.add_directive("targets", TargetsDirective)
    return {"parallel_read_safe": True}
