"""What a user's notebook in a container or pod does with snapshots, and what it cannot do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.docker.remote_hub import RemoteHub

CELL_SECONDS = 120.0
TAKE = """
open("notes.txt", "w").write("first")
%snapshot take "before cleaning"
"""
RESTORE = """
import os
os.remove("notes.txt")
%snapshot restore notes.txt
print("READ", open("notes.txt").read())
"""
ASK = """
import json, os, urllib.error, urllib.request
from urllib.parse import urlsplit

def ask(method, owner, path):
    headers = {{
        "Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"],
        "Host": urlsplit(os.environ["JUPYTERHUB_HOST"]).netloc,
    }}
    address = os.environ["FARANDOLE_HUB_URL"] + "/services/snapshots/repositories/" + owner + "/" + path
    body = b"x" if method == "POST" else None
    try:
        return urllib.request.urlopen(urllib.request.Request(address, body, headers, method=method)).status
    except urllib.error.HTTPError as refused:
        return refused.code

requests = [("GET", "config"), ("GET", "snapshots/"), ("GET", "data/"), ("POST", "config"),
            ("POST", "data/" + "0" * 64), ("DELETE", "config"), ("DELETE", "snapshots/" + "0" * 64)]
print("ANSWERS", json.dumps([ask(method, {owner!r}, path) for method, path in requests]))
"""


def check_snapshots(hub: RemoteHub, user: str, other: str) -> None:
    """Check that a user takes a snapshot and restores a file from it, and that another user reaches none of it."""
    with hub.kernel(user) as kernel:
        assert "new: " in kernel.execute(TAKE, deadline=CELL_SECONDS)
        assert "before cleaning" in kernel.execute("%snapshot list", deadline=CELL_SECONDS)
        assert "READ first" in kernel.execute(RESTORE, deadline=CELL_SECONDS)
        own = kernel.execute(ASK.format(owner=user), deadline=CELL_SECONDS)
    # A user adds and reads, but the name of a file must be its digest, and nothing is replaced or deleted.
    assert _answers(own) == [200, 200, 200, 403, 400, 403, 403]
    with hub.kernel(other) as kernel:
        foreign = kernel.execute(ASK.format(owner=user), deadline=CELL_SECONDS)
    assert _answers(foreign) == [404] * 7


def _answers(output: str) -> list[int]:
    found = re.search(r"ANSWERS (.*)", output)
    assert found, output
    answers: list[int] = json.loads(found[1])
    return answers
