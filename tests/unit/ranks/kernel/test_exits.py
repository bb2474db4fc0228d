"""Tests which exits end a cell successfully, in a real IPython shell."""

import warnings

import pytest
from farandole.ranks.kernel import exits
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(monkeypatch):
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setattr(exits, "get_ipython", lambda: shell)
    with warnings.catch_warnings():
        exits.install()
        yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    "code",
    [
        "sys.exit()",
        "sys.exit(0)",
        "sys.exit(None)",
        "exit()",
        "quit(0)",
        "raise SystemExit",
        "import argparse; argparse.ArgumentParser().parse_args(['--help'])",
    ],
)
def test_a_successful_exit_ends_the_cell_without_an_error(shell, code, capsys):
    result = shell.run_cell(f"import sys\nreached = 1\n{code}\nreached = 2")
    assert (result.success, shell.user_ns["reached"]) == (True, 1)
    assert "To exit" not in capsys.readouterr().err
    assert shell.run_cell("after = 1").success


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit(1)", "1"),
        ("sys.exit('no data')", "no data"),
        ("sys.exit('0')", "0"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--unknown'])", "2"),
    ],
)
def test_any_other_exit_fails_with_its_status_or_message(shell, code, message):
    result = shell.run_cell(f"import sys\n{code}")
    assert isinstance(result.error_in_exec, SystemExit)
    assert str(result.error_in_exec) == message


def test_other_errors_stay_errors_and_a_second_installation_does_nothing(shell):
    run_code = shell.run_code
    exits.install()
    assert shell.run_code is run_code
    assert isinstance(shell.run_cell("1 / 0").error_in_exec, ZeroDivisionError)
