"""The origin of a run, as reported by a real kernel."""

import json

from farandole.runs.origin import Origin, origin
from jupyter_client.manager import start_new_kernel

DEADLINE = 60


def test_a_script_has_no_origin():
    assert origin() == Origin()


def test_the_origin_has_notebook_kernel_and_cell(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/digits.ipynb")
    manager, client = start_new_kernel(startup_timeout=DEADLINE)
    try:
        code = "import json\nfrom farandole.runs.origin import origin\nprint(json.dumps(vars(origin())))"
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        request = client.session.msg("execute_request", content, metadata={"cellId": "b0d6"})
        client.shell_channel.send(request)
        text = ""
        while not text:
            message = client.get_iopub_msg(timeout=DEADLINE)
            assert message["msg_type"] != "error", message["content"]
            text = message["content"].get("text", "")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    found = json.loads(text)
    assert (found["notebook"], found["cell"]) == ("/home/ada/digits.ipynb", "b0d6")
    assert found["kernel"] in manager.connection_file
