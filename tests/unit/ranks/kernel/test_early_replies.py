"""Tests which replies of a real kernel have the mark that the worker forwards without waiting for output."""

import os
from contextlib import contextmanager

import pytest
from farandole.protocol import NO_OUTPUT
from jupyter_client.manager import start_new_kernel

DEADLINE = 60
SEND_LATER = """
import threading, time
from pathlib import Path
from comm import create_comm
comm = create_comm(target_name="x")

def send():
    deadline = time.monotonic() + 60
    while not Path({mark!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    comm.send({{}})

threading.Thread(target=send).start()
"""
"""Opens a comm, and sends a message on it when a file exists."""


@contextmanager
def kernel():
    # With pytest's variable, ipykernel does not read the output that other processes write to its file descriptors.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    manager, client = start_new_kernel(startup_timeout=DEADLINE, env=environment)
    run(client, "from farandole.ranks.kernel.lean import make_lean")
    # As the driver does. During a cell with code, IPython replaces `write` of the streams and restores it afterwards.
    run(client, "", silent=True, user_expressions={"value": "make_lean()", "again": "make_lean()"})
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def client():
    with kernel() as client:
        yield client


def run(client, code, **options):
    """Execute code as a driver does, and return whether its reply is marked."""
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": False}
    request = client.session.msg("execute_request", content | options)
    client.request = request["msg_id"]
    client.shell_channel.send(request)
    while (reply := client.get_shell_msg(timeout=DEADLINE))["parent_header"].get("msg_id") != request["msg_id"]:
        pass
    return NO_OUTPUT in reply["metadata"]


def marked_soon(client, code, **options):
    """Return whether a cell without output is marked, at the latest the fifth time.

    The kernel may also publish other output, such as a warning that was logged during its start.
    """
    return any(run(client, code, **options) for _ in range(5))


def published(client, wanted):
    """Return the next messages about the last cell, up to the first one of this type or with this execution state."""
    found = []
    while wanted not in found:
        message = client.get_iopub_msg(timeout=DEADLINE)
        if message["parent_header"].get("msg_id") == client.request:
            found.append(message["content"].get("execution_state", message["msg_type"]))
    return found


@pytest.mark.parametrize("code", ["pass", "x = 1", "", "import threading\nthreading.Event().wait(0.05)\nNone"])
def test_a_cell_without_output_is_marked(client, code):
    assert marked_soon(client, code)


def test_an_expression_without_code_is_marked(client):
    assert marked_soon(client, "", silent=True, user_expressions={"value": "1 + 1"})


@pytest.mark.parametrize(
    "code",
    [
        "print('x')",
        "1 + 1",
        "1 / 0",
        "import os\nos.write(1, b'from the file descriptor\\n')\nNone",
        "import subprocess\nsubprocess.run(['echo', 'from a child'])\nNone",
        "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))",
        "import threading\none = threading.Thread(target=print, args=['x'])\none.start()\none.join()",
        "from comm import create_comm\ncreate_comm(target_name='x').send({})",
    ],
)
def test_a_cell_with_output_is_not_marked_and_the_next_one_is(client, code):
    assert not run(client, code)
    assert marked_soon(client, "pass")


def test_the_idle_status_follows_a_cell_with_and_without_output(client):
    run(client, "print('x')")
    assert published(client, "idle") == ["stream", "idle"]
    assert marked_soon(client, "pass")
    assert published(client, "idle") == ["idle"]


def test_what_is_published_between_two_cells_delays_the_next_reply(client, tmp_path):
    assert not run(client, SEND_LATER.format(mark=str(tmp_path / "send")))
    published(client, "idle")
    (tmp_path / "send").touch()
    published(client, "comm_msg")
    assert not run(client, "pass")
    assert marked_soon(client, "pass")


def test_a_command_of_the_shell_does_not_delay_later_replies(client):
    run(client, "!true")
    assert marked_soon(client, "pass")


def test_after_output_of_a_forked_child_no_reply_is_marked():
    code = "import os\nif (child := os.fork()) == 0:\n    {work}\n    os._exit(0)\nos.waitpid(child, 0)\nNone"
    with kernel() as client:
        assert marked_soon(client, code.format(work="pass"))
        assert not run(client, code.format(work="print('x', flush=True)"))
        assert not run(client, "pass")
