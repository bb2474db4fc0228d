"""Tests that a rank's tracebacks have the numbers of the notebook, in a real kernel."""

import re

import pytest
from farandole.protocol import CELL_PLACE
from jupyter_client.manager import start_new_kernel

DEADLINE = 60


@pytest.fixture(scope="module")
def client():
    manager, client = start_new_kernel(startup_timeout=DEADLINE)
    run(client, "from farandole.ranks.kernel import numbering\nnumbering.install()\nnumbering.install()")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code, place=None):
    """Execute code as a driver does, and return the traceback without colors."""
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": False}
    request = client.session.msg("execute_request", content, metadata={CELL_PLACE: place} if place else {})
    client.shell_channel.send(request)
    # A slow kernel may also answer a second request from its start.
    while (reply := client.get_shell_msg(timeout=DEADLINE))["parent_header"].get("msg_id") != request["msg_id"]:
        pass
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(reply["content"].get("traceback", [])))


def test_a_traceback_names_the_notebooks_cell_and_line(client):
    traceback = run(client, "x = 1\n1 / 0\n", {"number": 7, "lines_above": 1})
    assert "Cell In[7], line 3" in traceback
    assert "----> 3 1 / 0" in traceback


def test_a_function_keeps_the_numbers_of_its_own_cell(client):
    run(client, "def divide():\n    return 1 / 0", {"number": 4, "lines_above": 2})
    traceback = run(client, "\n\ndivide()", {"number": 9, "lines_above": 3})
    assert "Cell In[9], line 4" in traceback
    assert "Cell In[4], line 4, in divide()" in traceback


def test_a_syntax_error_and_a_cell_magic_have_the_notebooks_line(client):
    assert "Cell In[5], line 2" in run(client, "x = = 1", {"number": 5, "lines_above": 1})
    assert "ZeroDivisionError" in run(client, "%%time\n1 / 0", {"number": 6, "lines_above": 1})


def test_code_that_is_not_in_the_notebook_has_its_own_lines(client):
    assert re.search(r"Cell In\[\d+\], line 1\b", run(client, "1 / 0"))
