"""Versions of data sets on a real hub without containers: published by a user, and recorded in a run of another one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

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


def test_a_published_version_is_recorded_in_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        run_hub(state) as hub,
        RemoteKernel(hub.start_notebook("emmy"), hub.token_for("emmy"), "a.ipynb") as emmy,
    ):
        assert f"digits@1 is unchanged: {digest}" in emmy.execute("%dataset verify digits@1", deadline=SECONDS)
        emmy.execute("%cluster start --workers 1 --backend none", deadline=SECONDS)
        emmy.execute(TRAIN, deadline=SECONDS)
        [run] = (hub.state / "homes" / "emmy" / "farandole" / "runs").glob("*/run.json")
        assert json.loads(run.read_text())["data_sets"] == {"digits@1": digest}
        emmy.execute("%cluster stop", deadline=SECONDS)
