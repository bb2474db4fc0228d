"""Tests that a file is executed as Python executes it, in a real IPython shell."""

import sys

import pytest
from farandole.ranks.kernel import script
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setattr(script, "get_ipython", lambda: shell)
    shell.user_ns["script"] = script
    yield shell
    InteractiveShell.clear_instance()


def test_a_file_sees_its_arguments_its_name_and_its_folder(shell):
    before = list(sys.argv), list(sys.path)
    code = "import sys\nseen = [sys.argv, __file__, __name__, sys.path[0]]\ndef f(x: Unknown): ...\n"
    with pytest.raises(NameError):
        script.run(code, "/there/train.py", ["--epochs", "3"])
    seen = [["/there/train.py", "--epochs", "3"], "/there/train.py", "__main__", "/there"]
    assert shell.user_ns["seen"] == seen
    assert (sys.argv, sys.path) == before
    assert "__file__" not in shell.user_ns


def test_a_traceback_shows_the_lines_of_the_file_and_not_this_module(shell, capsys):
    code = "def train():\n    raise ValueError('boom')  # the line\n\ntrain()\n"
    result = shell.run_cell(f"script.run({code!r}, '/there/train.py', [])")
    assert isinstance(result.error_in_exec, ValueError)
    text = capsys.readouterr().out
    assert "/there/train.py" in text
    assert "# the line" in text
    assert "script" not in text


def test_a_syntax_error_names_the_file_and_its_line(shell, capsys):
    result = shell.run_cell("script.run('x = 1\\nx = = 2\\n', '/there/train.py', [])")
    assert isinstance(result.error_in_exec, SyntaxError)
    assert (result.error_in_exec.filename, result.error_in_exec.lineno) == ("/there/train.py", 2)
    assert "/there/train.py" in "".join(capsys.readouterr())
