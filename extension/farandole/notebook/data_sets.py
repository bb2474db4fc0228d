"""The magic ``%dataset``, for versions of data sets that a hub's users share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from farandole.datasets.versions.manifest import verify
from farandole.datasets.versions.mounted import digests, find, mounted
from farandole.datasets.versions.publish import publish
from farandole.exceptions import UsageError
from farandole.notebook.arguments import parse_line, perform
from farandole.notebook.serving.tables import Table
from farandole.sizes import size_text

HEAD = ("data set", "folder", "digest")
ACTIONS = ("list", "verify", "publish")


@magics_class
class DataSetMagics(Magics):
    """The magic ``%dataset``."""

    @magic_arguments()
    @argument("action", nargs="?", default="list", help="list (the default), verify NAME@VERSION or publish DIR NAME")
    @argument("values", nargs="*", help="the version to verify, or the folder to publish and the name of the data set")
    @argument("--help", "-h", action="store_true", help="explain the action, as `%%dataset publish?` does")
    @line_magic
    def dataset(self, line: str) -> Any:
        """List, verify and publish versions of data sets that all users share."""
        options = parse_line(self.dataset, line)
        actions: dict[str, Callable[[argparse.Namespace], Any]] = {name: getattr(self, f"_{name}") for name in ACTIONS}
        return perform("%dataset", options, actions, self.dataset.parser)

    def _list(self, options: argparse.Namespace) -> Table:
        """List the versions that this server has, with their folders and digests."""
        if options.values:
            raise UsageError("`%dataset list` has no further arguments")
        folders = mounted()
        rows = [(name, str(folders[name]), digest) for name, digest in digests().items()]
        return Table(HEAD, rows, empty="this server has no versions of data sets; the administrator can add them")

    def _verify(self, options: argparse.Namespace) -> None:
        """Compare all files of a version with its manifest, with `%dataset verify imagenet@2`."""
        if len(options.values) != 1:
            raise UsageError("`%dataset verify` needs a version, such as `%dataset verify imagenet@2`")
        [name] = options.values
        print(f"{name} is unchanged: {verify(find(name))}")

    def _publish(self, options: argparse.Namespace) -> None:
        """Copy a folder to the next version of a data set, with `%dataset publish data/imagenet imagenet`."""
        if len(options.values) != 2:
            raise UsageError(
                "`%dataset publish` needs a folder and a name, such as `%dataset publish data/imagenet imagenet`"
            )
        folder, name = options.values
        published = publish(Path(folder).expanduser(), name)
        version, copied = published.version, published.copied
        files = f"{copied.files} file{'' if copied.files == 1 else 's'}"
        print(f"{version} is published: {files}, {size_text(copied.bytes)}, {copied.digest}")
        print(f"The administrator adds {version}:/data/{name} to FARANDOLE_SHARED_VOLUMES.")
