"""Tests that navigations from pages of other origins neither create nor start servers, and do not end sessions."""

import pytest

from tests.unit.spawner_config.origins.test_application import OWN, ask, hub

HOST = "hub.localhost:8000"
FOREIGN = [
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Referer": f"{OWN}/hub/home"},
    {"Referer": "http://ada.hub.localhost:8000/"},
    {"Referer": f"{OWN}.evil.test/hub/home"},
    {"Referer": ""},
]
OWN_OR_TYPED = [
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin", "Referer": "http://ada.hub.localhost:8000/"},
    {"Referer": f"{OWN}/hub/home"},
    {"Referer": OWN},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("path", ["/hub/logout", "/hub/spawn/ada/a1", "/hub/spawn/ada/a%22%3E", "/hub/spawn/ada/"])
async def test_a_navigation_from_another_origin_neither_makes_a_server_nor_ends_a_session(path, headers):
    async with hub() as session:
        for query in ("", "?opt-profile=gpu"):
            sent = {"Host": HOST, "X-Forwarded-For": "10.0.0.7", **headers}
            async with session.get(path + query, headers=sent, allow_redirects=False) as answer:
                text = await answer.text()
                assert (answer.status, answer.headers.get("Set-Cookie")) == (200, None)
                assert "the hub" not in text.replace("asked the hub to", "")
                assert f'href="{OWN}{path}"' in text
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"
        assert (await ask(session, "HEAD", path, HOST, **headers))[2:] == ("", None)


@pytest.mark.parametrize("headers", OWN_OR_TYPED)
async def test_navigations_of_the_hubs_own_pages_and_typed_addresses_reach_the_hub(headers):
    async with hub() as session:
        for path in ("/hub/logout", "/hub/spawn", "/hub/spawn/ada", "/hub/spawn/ada/a1?display_name=A%201"):
            assert (await ask(session, "GET", path, HOST, **headers))[2] == "the hub"


@pytest.mark.parametrize(
    "path",
    [
        # A login at a provider, a link to /hub/user-redirect or a link to a stopped server leads to these pages.
        "/hub/spawn",
        "/hub/spawn/ada",
        "/hub/spawn/ada?next=%2Fuser%2Fada%2Flab",
        "/hub/spawn-pending/ada/a1?next=x",
        "/hub/user/ada/lab",
        "/hub/user-redirect/lab?opt-profile=gpu",
        "/hub/home",
        "/hub/login",
        "/hub/api/oauth2/authorize?client_id=x",
    ],
)
async def test_links_from_elsewhere_reach_what_changes_nothing(path):
    async with hub() as session:
        for site in ("same-site", "cross-site"):
            assert (await ask(session, "GET", path, HOST, **{"Sec-Fetch-Site": site}))[2] == "the hub"


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}])
@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("opt-profile=gpu", ""),
        ("profile=gpu", ""),
        ("opt-=", ""),
        ("redirects=1&next=%2Fuser%2Fada%2Flab%3Fa%3Db%26c%3Dd", "?next=%2Fuser%2Fada%2Flab%3Fa%3Db%26c%3Dd"),
        ("display_name=A+1&opt-wait=yes&next=%2F%C3%A4", "?next=%2F%C3%A4&display_name=A+1"),
    ],
)
async def test_no_address_starts_a_server_with_options(query, kept, headers):
    async with hub() as session:
        for path in ("/hub/spawn", "/hub/spawn/ada", "/hub/spawn/ada/a1"):
            status, location, text, cookie = await ask(session, "GET", f"{path}?{query}", HOST, **headers)
            assert (status, location, text, cookie) == (302, f"{OWN}{path}{kept}", "", None)
            if kept:
                assert (await ask(session, "GET", path + kept, HOST, **headers))[2] == "the hub"


async def test_a_default_server_is_not_started_by_a_page_of_another_origin():
    async with hub() as session:
        for path in ("/hub/spawn", "/hub/spawn/ada"):
            foreign = {"Sec-Fetch-Site": "same-site"}
            assert (await ask(session, "GET", f"{path}?opt-profile=gpu", HOST, **foreign))[1] == OWN + path


async def test_forms_and_their_addresses_are_left_alone():
    async with hub() as session:
        answer = await ask(session, "POST", "/hub/spawn/ada/a1?_xsrf=x", HOST, Origin=OWN)
        assert answer[2] == "the hub"
