"""Data sets that all users can read, and folders that only the members of a group can see and change."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hub.process import local_session
from images.names import NOTEBOOK, version
from tests.docker.stack import ADMIN

if TYPE_CHECKING:
    from farandole.datasets.versions.names import DataVersion

    from tests.docker.stack import Stack

SECONDS = 240.0
READ = "print(open('/data/answers/answer.txt').read())"
WRITE = """
try:
    open('/data/answers/mine.txt', 'w')
except OSError as exc:
    print(exc.strerror)
"""
RECORDED = "from farandole.runs.store import RunStore; print(RunStore().list()[0].data_sets)"
PUBLISH = """
import pathlib
folder = pathlib.Path("digits")
folder.mkdir(exist_ok=True)
(folder / "a.txt").write_text({content!r})
try:
    get_ipython().run_line_magic("dataset", "publish digits {name}")
except ValueError as error:
    print(error)
"""
GROUPS = "import os; print(os.listdir('/groups'))"


def test_a_data_set_is_read_only_on_notebook_and_worker(stack: Stack) -> None:
    with stack.kernel("ada") as kernel:
        kernel.execute("%load_ext farandole", deadline=SECONDS)
        kernel.execute("%cluster start --workers 1 --backend none", deadline=SECONDS)
        for first_line in ("", "%%distributed\n"):
            assert kernel.execute(first_line + READ, deadline=SECONDS).split()[-1] == "42"
            assert "Read-only file system" in kernel.execute(first_line + WRITE, deadline=SECONDS)
        kernel.execute("%cluster stop", deadline=SECONDS)


def test_a_version_of_a_data_set_is_read_only_and_recorded_in_runs(
    stack: Stack, data_version: tuple[DataVersion, str]
) -> None:
    data, digest = data_version
    with stack.kernel("ada") as kernel:
        assert digest in kernel.execute(f"%dataset verify {data}", deadline=SECONDS)
        assert "Read-only file system" in kernel.execute(WRITE.replace("answers", "version"), deadline=SECONDS)
        kernel.execute("%cluster start --workers 1 --backend none", deadline=SECONDS)
        kernel.execute("%%distributed_train\nprint(open('/data/version/answer.txt').read())", deadline=SECONDS)
        assert f"{{'{data}': '{digest}'}}" in kernel.execute(RECORDED, deadline=SECONDS)
        kernel.execute("%cluster stop", deadline=SECONDS)


def test_the_hub_publishes_a_folder_of_a_publisher_and_nobody_can_write_to_it(stack: Stack) -> None:
    name = f"farandole-test-digits-{secrets.token_hex(3)}"
    with stack.kernel("ada") as ada, stack.kernel("grace") as grace:
        for number in (1, 2):
            said = ada.execute(PUBLISH.format(name=name, content=str(number)), deadline=SECONDS)
            assert f"{name}@{number} is published: 1 file, 1 B, sha256:" in said
            digest = said.split()[7]
            verify = ("--entrypoint=python", NOTEBOOK.tag(version()), "-m", "farandole.datasets.versions", "verify")
            volume = f"{name}-v{number}"
            assert stack.docker("run", "--rm", f"--volume={volume}:/data:ro", *verify, "/data").strip() == digest
        refused = grace.execute(PUBLISH.format(name=name, content="3"), deadline=SECONDS)
        assert "you cannot publish data sets here" in refused
    assert stack.docker("ps", "--all", "--quiet", f"--filter=name={stack.name}-publish") == ""
    stack.docker("volume", "rm", f"{name}-v1", f"{name}-v2")


def test_a_groups_folder_is_writable_for_members_and_hidden_from_others(stack: Stack) -> None:
    with stack.kernel("ada") as ada, stack.kernel("grace") as grace, stack.kernel("emmy") as emmy:
        ada.execute("open('/groups/vision/note.txt', 'w').write('from ada')", deadline=SECONDS)
        grace.execute("open('/groups/vision/note.txt', 'a').write(' and grace')", deadline=SECONDS)
        read = "print(open('/groups/vision/note.txt').read())"
        assert ada.execute(read, deadline=SECONDS).strip() == "from ada and grace"
        assert emmy.execute(GROUPS, deadline=SECONDS).strip() == "[]"


def test_members_are_those_of_the_hubs_group(stack: Stack) -> None:
    stack.browser("hedy")
    headers = {"Authorization": f"token {stack.browser(ADMIN).make_token()}"}
    where = f"{stack.url}/hub/api/groups/nlp"
    local_session().post(where, headers=headers, timeout=30).raise_for_status()
    members = {"users": ["hedy"]}
    local_session().post(f"{where}/users", json=members, headers=headers, timeout=30).raise_for_status()
    with stack.kernel("hedy") as hedy:
        assert hedy.execute(GROUPS, deadline=SECONDS).strip() == "['nlp']"
        hedy.execute("open('/groups/nlp/note.txt', 'w').write('mine')", deadline=SECONDS)
