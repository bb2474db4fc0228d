"""Tests for `%dataset` in a real IPython shell."""

import pytest
from farandole.datasets.versions.mounted import VARIABLE, variables
from farandole.datasets.versions.publish import PUBLISH_TO
from farandole.exceptions import DataSetError, UsageError
from farandole.notebook.data_sets import DataSetMagics
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell()
    shell.register_magics(DataSetMagics)
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def dataset(shell, tmp_path, monkeypatch):
    """`%dataset` of a publisher whose folder `source` has one file."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("one")
    monkeypatch.setenv(PUBLISH_TO, str(tmp_path / "store"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return lambda line: shell.run_line_magic("dataset", line)


def test_a_published_version_is_listed_and_verified(dataset, tmp_path, monkeypatch, capsys):
    dataset(f"publish {tmp_path}/source digits")
    said = capsys.readouterr().out
    assert said.startswith("digits@1 is published: 1 file, 3 B, sha256:")
    assert "adds digits@1:/data/digits to FARANDOLE_SHARED_VOLUMES" in said
    folder = tmp_path / "store" / "digits" / "1"
    monkeypatch.setenv(VARIABLE, variables({"digits@1": str(folder)})[VARIABLE])
    [(name, where, digest)] = dataset("").rows
    assert (name, where) == ("digits@1", str(folder))
    assert digest in said
    dataset("verify digits@1")
    assert capsys.readouterr().out == f"digits@1 is unchanged: {digest}\n"
    (folder / "a.txt").chmod(0o644)
    (folder / "a.txt").write_text("two")
    with pytest.raises(DataSetError, match="differs from its manifest in 1 file, such as 'a.txt'"):
        dataset("verify digits@1")


def test_without_versions_the_list_says_so(dataset):
    assert "no versions of data sets" in repr(dataset("list"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("publish source", "needs a folder and a name"),
        ("verify", "needs a version"),
        ("list digits", "has no further arguments"),
        ("verify digits@1", "no data set 'digits@1'; it has none"),
        ("publihs a b", "no action 'publihs'.*publish"),
    ],
)
def test_an_invalid_line_is_refused_with_the_remedy(dataset, line, message):
    with pytest.raises(UsageError, match=message):
        dataset(line)


def test_each_action_has_help(dataset, capsys):
    dataset("publish --help")
    assert capsys.readouterr().out.startswith("%dataset publish: Copy a folder")
