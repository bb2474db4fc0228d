"""Names and versions of models."""

import pytest
from farandole.exceptions import UsageError
from farandole.models.names import ModelName, parse_key, parse_name


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("iris", ModelName(model="iris"), None),
        ("iris:latest", ModelName(model="iris"), None),
        ("iris:3", ModelName(model="iris"), 3),
        ("vision/iris:12", ModelName(model="iris", group="vision"), 12),
    ],
)
def test_a_key_has_a_name_and_a_version(text, name, version):
    assert parse_key(text) == (name, version)
    assert str(name) == text.partition(":")[0]


@pytest.mark.parametrize("text", ["", "Iris", "../iris", "iris/", "a/b/c", "-iris", "iris-", "x" * 25, "iris\n", None])
def test_an_invalid_name_is_refused(text):
    with pytest.raises(UsageError, match="cannot be the name of a model"):
        parse_name(text)


@pytest.mark.parametrize("version", ["0", "-1", "newest", "1.0", "1" * 10])
def test_an_invalid_version_is_refused(version):
    with pytest.raises(UsageError, match=r"is not a version; write iris:3"):
        parse_key(f"iris:{version}")
