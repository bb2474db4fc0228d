"""Versions of data sets on a real hub without containers: published, recorded in a run of another user, and moved."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from farandole.datasets.versions.manifest import MANIFEST, verify
from farandole.datasets.versions.names import parse_version
from farandole.datasets.versions.sources import TOKEN

from images.data import mirror
from images.data.bundle import write_data
from tests.clients.kernel import RemoteKernel
from tests.hub import run_hub

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SECONDS = 240.0
MAKE = "import pathlib; folder = pathlib.Path('digits'); folder.mkdir(); (folder / 'a.txt').write_text('42')"
TRAIN = "%%distributed_train --backend none\nprint('done')"
REFUSED = """
try:
    get_ipython().run_line_magic("dataset", "publish digits digits")
except ValueError as error:
    print(error)
"""


def test_a_published_version_is_recorded_in_runs_and_moves_to_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "hub"
    monkeypatch.setenv("FARANDOLE_DATA_PUBLISHERS", "ada")
    with run_hub(state) as hub:
        with RemoteKernel(hub.start_notebook("ada"), hub.token_for("ada"), "a.ipynb") as ada:
            ada.execute(MAKE, deadline=SECONDS)
            said = ada.execute("%dataset publish digits digits", deadline=SECONDS)
        assert "digits@1 is published: 1 file, 2 B, sha256:" in said
        digest = said.split()[7]
        with RemoteKernel(hub.start_notebook("emmy"), hub.token_for("emmy"), "a.ipynb") as emmy:
            emmy.execute(MAKE, deadline=SECONDS)
            assert "you cannot publish data sets here" in emmy.execute(REFUSED, deadline=SECONDS)
    monkeypatch.setenv("FARANDOLE_SHARED_VOLUMES", "digits@1:/data/digits")
    with (
        # The mirror does not resolve the hosts of users below `localhost`, as browsers do.
        run_hub(state, one_origin=True) as hub,
        RemoteKernel(hub.start_notebook("emmy"), hub.token_for("emmy"), "a.ipynb") as emmy,
    ):
        assert f"digits@1 is unchanged: {digest}" in emmy.execute("%dataset verify digits@1", deadline=SECONDS)
        emmy.execute("%cluster start --workers 1 --backend none", deadline=SECONDS)
        emmy.execute(TRAIN, deadline=SECONDS)
        [run] = (hub.state / "homes" / "emmy" / "farandole" / "runs").glob("*/run.json")
        assert json.loads(run.read_text())["data_sets"] == {"digits@1": digest}
        emmy.execute("%cluster stop", deadline=SECONDS)
        monkeypatch.setenv(TOKEN, hub.token_for("emmy"))
        monkeypatch.setenv("FARANDOLE_STATE", str(tmp_path / "next"))
        mirror.main("digits@1", f"{hub.url}/user/emmy/lab", mirror.FOLDER)
        assert f"digits@1 is here: {digest}" in capsys.readouterr().out
    assert verify(tmp_path / "next" / "datasets" / "digits" / "1") == digest
    bundle = write_data(parse_version("digits@1"), tmp_path / "dist")
    monkeypatch.setenv("FARANDOLE_STATE", str(tmp_path / "third"))
    load(bundle, tmp_path / "unpacked")
    moved = tmp_path / "third" / "datasets" / "digits" / "1"
    assert verify(moved) == digest
    assert (moved / MANIFEST).read_bytes() == (state / "datasets" / "digits" / "1" / MANIFEST).read_bytes()


def load(bundle: Path, folder: Path) -> None:
    """Give a hub without containers what `make bundle DATA=` has written, as docs/how-to/data-sets.md describes."""
    folder.mkdir()
    subprocess.run(["tar", "-C", folder, "-xf", bundle], check=True)
    mirror.main("digits@1", str(folder), mirror.FOLDER)
