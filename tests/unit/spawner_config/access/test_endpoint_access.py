"""Tests for the tokens and shares of endpoints, with a complete hub. Only its proxy and its servers are fakes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jupyterhub import orm
from jupyterhub.roles import assign_default_roles, create_role, get_default_roles

from spawner_config.access.endpoint_access import MOST_SHARES, end_tokens_with_endpoints
from spawner_config.limits.servers import forget_stopped_servers
from spawner_config.roles import NOTEBOOK_SCOPES
from tests.unit.spawner_config.access.test_accounts import Hub as Users
from tests.unit.spawner_config.operators.test_handlers import Hub, hub, proxy, until

if TYPE_CHECKING:
    import pytest
    from sqlalchemy.orm import Session

__all__ = ["hub", "proxy"]
OWN = "/hub/api/farandole/users/ada/servers"
CALLERS = "access:servers!server=ada/serve-iris"
REQUESTS = (("POST", "tokens"), ("GET", "shares"), ("PUT", "shares/olga"), ("DELETE", "shares/olga"))
NOTE = "Callers of serve-iris"


async def called(hub: Hub, method: str, path: str, scopes: list[str] | None = None, **options: object) -> tuple:
    """Send a request as ada's notebook, or with a token of ada that has other scopes."""
    return await hub.ask(method, f"{OWN}/{path}", hub.token(hub.ada, scopes or NOTEBOOK_SCOPES), **options)


async def test_a_token_is_valid_for_a_second_to_a_year(hub: Hub) -> None:
    hub.start("serve-iris")
    for days in (0, -1, 0.5 / 86_400, 366.5, 10**400, True, None, "3", [3], float("nan"), float("inf")):
        status, answer = await called(hub, "POST", "serve-iris/tokens", json={"days": days})
        assert (status, "A token can be valid for one second to 366 days" in answer["message"]) == (400, True), days
    assert not hub.application.db.query(orm.APIToken).filter_by(note=NOTE).count()
    for days in (1 / 86_400, 366):
        status, answer = await called(hub, "POST", "serve-iris/tokens", json={"days": days})
        assert status == 201
        token = orm.APIToken.find(hub.application.db, answer["token"])
        assert (token.scopes, token.note) == ([CALLERS], NOTE)
        assert abs((token.expires_at - token.created).total_seconds() - days * 86_400) <= 1


async def test_a_token_is_refused_after_its_days(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.start("serve-iris")
    token = (await called(hub, "POST", "serve-iris/tokens", json={"days": 2}))[1]["token"]
    now = orm.utcnow()
    for days, status in ((1.9, 200), (2.1, 403)):
        monkeypatch.setattr(orm.APIToken, "now", staticmethod(lambda days=days: now + timedelta(days=days)))
        assert (await hub.ask("GET", "/hub/api/user", token))[0] == status


async def test_only_programs_of_the_owner_decide_who_may_call(hub: Hub) -> None:
    hub.start("serve-iris")
    refused = ([CALLERS], ["read:users!user"], ["users:activity!user", "access:servers!user"])
    for method, path in REQUESTS:
        for scopes in refused:
            status, _ = await called(hub, method, f"serve-iris/{path}", scopes, json={})
            assert status == 403, (method, path, scopes)
        # An administrator has the scopes, but is not the owner.
        assert (await hub.ask(method, f"{OWN}/serve-iris/{path}", hub.token(hub.olga), json={}))[0] == 403


async def test_only_an_endpoint_has_tokens_and_shares(hub: Hub) -> None:
    servers = ("main-w0", "serve-iris-w2", "paper")
    for name in servers:
        hub.start(name)
    for name in (*servers, "serve-unknown"):
        for method, path in REQUESTS:
            status, answer = await called(hub, method, f"{name}/{path}", json={})
            assert (status, answer["message"]) == (404, f"There is no endpoint {name!r}. Start one with %serve.")


async def test_an_endpoint_is_shared_with_users_who_have_logged_in(hub: Hub) -> None:
    hub.start("serve-iris")
    for name, status, message in (
        ("nobody", 404, "There is no user 'nobody' who has logged in here."),
        ("ada", 400, "You own this endpoint, so you need no share."),
    ):
        found, answer = await called(hub, "PUT", f"serve-iris/shares/{name}")
        assert (found, answer["message"]) == (status, message)
    assert (await called(hub, "PUT", "serve-iris/shares/olga"))[0] == 204
    assert await called(hub, "GET", "serve-iris/shares") == (200, {"users": ["olga"]})
    assert (await called(hub, "DELETE", "serve-iris/shares/olga"))[0] == 204
    assert await called(hub, "GET", "serve-iris/shares") == (200, {"users": []})
    status, answer = await called(hub, "DELETE", "serve-iris/shares/olga")
    assert (status, answer["message"]) == (404, "'serve-iris' is not shared with 'olga'.")


async def test_an_endpoint_has_a_largest_number_of_shares(hub: Hub) -> None:
    db, endpoint = hub.application.db, hub.start("serve-iris").orm_spawner
    for number in range(MOST_SHARES - 1):
        db.add(other := orm.User(name=f"user{number}"))
        db.flush()
        orm.Share.grant(db, endpoint, other)
    assert (await called(hub, "PUT", "serve-iris/shares/olga"))[0] == 204
    hub.user("otto")
    status, answer = await called(hub, "PUT", "serve-iris/shares/otto")
    assert (status, "can be shared with 100 users" in answer["message"]) == (400, True)


async def test_a_body_that_is_no_object_is_refused(hub: Hub) -> None:
    hub.start("serve-iris")
    for body in (b"[]", b'"3"', b"1"):
        status, answer = await called(hub, "POST", "serve-iris/tokens", data=body)
        assert (status, answer["message"]) == (400, "The body must be a JSON object.")


async def test_the_tokens_of_a_removed_endpoint_cannot_call_the_next_one_of_that_name(hub: Hub) -> None:
    hub.start("serve-iris")
    token = (await called(hub, "POST", "serve-iris/tokens"))[1]["token"]
    await called(hub, "PUT", "serve-iris/shares/olga")
    owner = hub.token(hub.ada, NOTEBOOK_SCOPES)
    status, _ = await hub.ask("DELETE", "/hub/api/users/ada/servers/serve-iris", owner, json={"remove": True})
    assert status in (202, 204)
    await until(lambda: "serve-iris" not in hub.ada.orm_spawners)
    hub.start("serve-iris")
    assert orm.APIToken.find(hub.application.db, token) is None
    assert (await hub.ask("GET", "/hub/api/user", token))[0] == 403
    assert await called(hub, "GET", "serve-iris/shares") == (200, {"users": []})


def test_the_record_of_an_endpoint_takes_only_the_tokens_of_its_callers_with_it(database: Session) -> None:
    end_tokens_with_endpoints()
    users = Users(database)
    for role in get_default_roles():
        create_role(database, role)
    ada, grace = users.user("ada"), users.user("grace")
    for user in (ada, grace):
        assign_default_roles(database, entity=user.orm_user)
    for name in ("serve-iris", "serve-iris-2", "main-w0"):
        ada._new_orm_spawner(name, name)
    scopes = {
        "of callers": [CALLERS],
        "of callers of another endpoint": [f"{CALLERS}-2"],
        "of a worker": ["access:servers!server=ada/main-w0"],
        "of two endpoints": [CALLERS, f"{CALLERS}-2"],
        "of a notebook": NOTEBOOK_SCOPES,
    }
    for note, own in scopes.items():
        ada.new_api_token(note=note, scopes=own)
    grace.new_api_token(note="of another user", scopes=["access:servers!user"])
    before = {token.note for token in database.query(orm.APIToken)}
    database.delete(ada.orm_spawners["serve-iris"])
    database.commit()
    assert before - {token.note for token in database.query(orm.APIToken)} == {"of callers"}
    # Stopped endpoints are forgotten if their user has too many servers.
    forget_stopped_servers(ada)
    assert {token.note for token in ada.api_tokens} & set(scopes) == {*scopes} - {
        "of callers", "of callers of another endpoint",
    }  # fmt: skip
    database.delete(ada.orm_user)
    database.commit()
    assert {token.user.name for token in database.query(orm.APIToken)} == {"grace"}
