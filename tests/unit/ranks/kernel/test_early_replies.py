"""Tests which replies of a real kernel have the mark that the worker forwards without waiting for output."""

import os
import time

import pytest
from farandole.protocol import NO_OUTPUT
from jupyter_client.manager import start_new_kernel

DEADLINE = 60


@pytest.fixture(scope="module")
def client():
    # With pytest's variable, ipykernel does not read the output that other processes write to its file descriptors.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    manager, client = start_new_kernel(startup_timeout=DEADLINE, env=environment)
    run(client, "from farandole.ranks.kernel.lean import make_lean")
    # As the driver does. During a cell with code, IPython replaces `write` of the streams and restores it afterwards.
    run(client, "", silent=True, user_expressions={"value": "make_lean()", "again": "make_lean()"})
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code, **options):
    """Execute code as a driver does, and return whether its reply is marked."""
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": False}
    request = client.session.msg("execute_request", content | options)
    client.shell_channel.send(request)
    while (reply := client.get_shell_msg(timeout=DEADLINE))["parent_header"].get("msg_id") != request["msg_id"]:
        pass
    return NO_OUTPUT in reply["metadata"]


def published(client, request_count):
    """Return the types and states of messages on the kernel's output channel, up to the last idle status."""
    found = []
    while request_count:
        message = client.get_iopub_msg(timeout=DEADLINE)
        found.append(message["content"].get("execution_state", message["msg_type"]))
        request_count -= found[-1] == "idle"
    return found


@pytest.mark.parametrize("code", ["pass", "x = 1", "", "import threading\nthreading.Event().wait(0.05)\nNone"])
def test_a_cell_without_output_is_marked(client, code):
    assert run(client, code)


def test_an_expression_without_code_is_marked(client):
    assert run(client, "", silent=True, user_expressions={"value": "1 + 1"})


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
    assert run(client, "pass")
    assert run(client, "pass")


def test_the_idle_status_follows_each_cell_with_and_without_output(client):
    # The status of the previous cell may still be on its way.
    time.sleep(0.2)
    while client.iopub_channel.msg_ready():
        client.get_iopub_msg()
    run(client, "pass")
    run(client, "print('x')")
    assert sorted(published(client, 2)) == ["idle", "idle", "stream"]


def test_after_a_fork_no_cell_is_marked_because_the_child_may_print_at_any_time(client):
    assert not run(client, "import os\nif os.fork() == 0:\n    os._exit(0)")
    assert not run(client, "pass")
