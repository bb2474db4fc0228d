"""Tests that FARANDOLE_ORIGINS determines the command line of the proxy."""

import pytest

from hub.host_routing import proxy_arguments


@pytest.mark.parametrize(
    ("environ", "more"), [({}, 1), ({"FARANDOLE_ORIGINS": "per-user"}, 1), ({"FARANDOLE_ORIGINS": "one"}, 0)]
)
def test_the_proxy_routes_by_host_unless_all_users_share_one(environ, more):
    assert proxy_arguments(["proxy", "--port=8000"], environ) == ["proxy", "--port=8000", "--host-routing"][: 2 + more]


def test_a_wrong_word_is_named():
    with pytest.raises(ValueError, match="FARANDOLE_ORIGINS is 'two'"):
        proxy_arguments(["proxy"], {"FARANDOLE_ORIGINS": "two"})
