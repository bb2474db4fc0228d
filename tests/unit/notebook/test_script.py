"""Tests that the line magic splits its line into options, a file and the file's arguments."""

import pytest
from farandole.exceptions import UsageError
from farandole.notebook.script import split_line


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('é')\n", encoding="utf-8")
    (tmp_path / "my train.py").write_text("pass\n", encoding="utf-8")
    (tmp_path / "open.py").write_text("x = 1\ny = (\n", encoding="utf-8")
    (tmp_path / "null.py").write_text("x = '\0'\n", encoding="utf-8")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "options", "name", "arguments"),
    [
        ("train.py", "", "train.py", ()),
        ("  train.py  ", "", "train.py", ()),
        ("--name 'a b' -b torch train.py --epochs 3", "--name 'a b' -b torch ", "train.py", ("--epochs", "3")),
        ("--resume train.py other.py 'a b'", "--resume ", "train.py", ("other.py", "a b")),
        ('--detach "my train.py" x', "--detach ", "my train.py", ("x",)),
        ("./train.py", "", "train.py", ()),
    ],
)
def test_the_line_is_split_at_the_file(folder, line, options, name, arguments):
    words, script = split_line(line)
    assert (words, script.path.name, script.arguments) == (options, name, arguments)
    assert script.path.is_absolute()
    assert script.code == (folder / name).read_text(encoding="utf-8")
    assert script.options == {"script": [str(script.path), *arguments]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"runs a Python file, as in `%distributed_train train.py --epochs 3`.*`%%distributed_train`"),
        ("--name x", "runs a Python file"),
        ("missing.py --epochs 3", "there is no file missing.py in .*; check the name and the folder"),
        ("folder.py", "folder.py cannot be read as Python code: .*directory"),
        ("binary.py", "binary.py cannot be read as Python code: "),
        ("open.py", r"open.py is not valid Python, line 2: '\(' was never closed"),
        ("null.py", "null.py is not valid Python.*null bytes"),
        ("train.py 'open", "the arguments of train.py cannot be split into words: No closing quotation"),
    ],
)
def test_a_line_without_a_readable_file_is_refused(line, message):
    with pytest.raises(UsageError, match=message):
        split_line(line)
