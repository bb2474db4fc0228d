"""The Sphinx configuration of the documentation, which `make docs` builds without downloads."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

project = "Farandole"
author = "Farandole contributors"
project_copyright = f"{author}, BSD 3-Clause"
release = installed_version("farandole")
version = release

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "directives"]
exclude_patterns = ["**/.ipynb_checkpoints"]
# Docstrings use single backticks for names; render them as code.
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"
# Smart quotes would turn the two hyphens of a command-line option into a dash.
smartquotes = False
# Do not warn about code that cannot be highlighted, because the tutorials' magics are not valid Python.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "pydata_sphinx_theme"
html_title = "Farandole"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
