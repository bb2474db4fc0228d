"""Names of images are parsed as Docker parses them, apart from names without a registry."""

import pytest
from farandole.exceptions import UsageError
from farandole.registry.reference import Reference, is_reference, parse_reference

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("registry.example.org/lab/iris:3", Reference(host="registry.example.org", repository="lab/iris", tag="3")),
        ("LOCALHOST:5000/iris", Reference(host="localhost:5000", repository="iris", scheme="http")),
        ("localhost/iris", Reference(host="localhost", repository="iris", scheme="http")),
        ("127.0.0.1:5000/iris", Reference(host="127.0.0.1:5000", repository="iris", scheme="http")),
        ("[::1]:5000/iris:a", Reference(host="[::1]:5000", repository="iris", tag="a", scheme="http")),
        ("http://10.0.0.2:5000/iris", Reference(host="10.0.0.2:5000", repository="iris", scheme="http")),
        ("https://localhost/iris", Reference(host="localhost", repository="iris")),
        (f"a.b/c:1@{DIGEST}", Reference(host="a.b", repository="c", tag="1", digest=DIGEST)),
    ],
)
def test_a_name_is_parsed(text, expected):
    assert parse_reference(text) == expected
    assert is_reference(text)
    assert parse_reference(f"{expected.scheme}://{expected}") == expected


@pytest.mark.parametrize("text", ["iris", "iris:3", "vision/iris", "vision/iris:3"])
def test_a_model_of_the_store_is_no_image(text):
    assert not is_reference(text)


@pytest.mark.parametrize(
    "text", ["", "iris", "lab/iris", "a.b/Iris", "a.b/c:", "a.b/c@sha256:0", "a.b//c", "ftp://a.b/c"]
)
def test_a_wrong_name_is_refused(text):
    with pytest.raises(UsageError, match="does not name an image in a registry"):
        parse_reference(text)


@pytest.mark.parametrize(("text", "wanted"), [("a.b/c", "latest"), ("a.b/c:1", "1"), (f"a.b/c:1@{DIGEST}", DIGEST)])
def test_a_digest_counts_more_than_a_tag(text, wanted):
    assert parse_reference(text).wanted == wanted
