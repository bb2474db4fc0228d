"""Tests that a cell's code is found in the notebook, in a real IPython shell."""

import pytest
from farandole.driver.cells.place import place_of
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell():
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("cell", "lines"), [("%%keep\nx\ny", 1), ("\n%%keep x\n\nx\n", 3), ("%%keep\nx\n", 1), ("\nkeep('x')", 1)]
)
def test_the_code_of_a_cell_has_a_place_in_the_notebook(shell, cell, lines):
    found = []
    shell.register_magic_function(lambda _line, code: found.append(place_of(code)), "cell", "keep")
    shell.user_ns["keep"] = lambda code: found.append(place_of(code))
    shell.run_cell("0", store_history=True)
    shell.run_cell(cell, store_history=True)
    assert found == [{"number": 2, "lines_above": lines}]


@pytest.mark.parametrize("code", ["z = 3", "", "\n"])
def test_other_code_has_no_place(shell, code):
    shell.run_cell("x = 1", store_history=True)
    assert place_of(code) is None


def test_without_a_shell_there_is_no_place():
    InteractiveShell.clear_instance()
    assert place_of("x = 1") is None
