"""Tests for the publications of a hub: the numbers of versions, and what becomes of each."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from farandole.datasets.versions.helper import EXISTS

from spawner_config.publishing.publications import Ended, Order, PublicationError, Publications, VersionStore
from spawner_config.shares import Shares, parse_data

if TYPE_CHECKING:
    from farandole.datasets.versions.names import DataVersion

RESULT = {"files": 1, "bytes": 2, "digest": "sha256:9c"}
DONE = Ended(status=0, outcome=f"a warning\n{json.dumps(RESULT)}\n")
TAKEN = Ended(status=EXISTS, outcome='{"error": "has a version already"}')
SHARES = Shares(data=parse_data("digits@2:/data/digits, digits@1:/data/old, web:/data/web", "farandole"))


class Store(VersionStore):
    """Volumes in which nothing is copied: each version ends as `ends` says, once it `may_end`."""

    def __init__(self, **ends: Any) -> None:
        self.ends = ends
        self.asked: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def copy(self, version: DataVersion, _order: Order) -> Ended | None:
        self.asked.append(str(version))
        await self.may_end.wait()
        found = self.ends.get(version.volume.replace("-", "_"), DONE)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]


def order(name: str = "digits", user: str = "ada") -> Order:
    return Order(user=user, spawner=None, name=name, folder="data/digits", bytes=2)


async def state_of(publications: Publications, name: str = "digits", user: str = "ada") -> Any:
    async with asyncio.timeout(10):
        while (state := publications.state_of(user, name)) == {"state": "copying"}:
            await asyncio.sleep(0)
    return state


def made(store: Store, shares: Shares = SHARES) -> Publications:
    return Publications(store, frozenset({"ada", "grace"}), shares, hub="farandole")


async def test_a_version_follows_those_that_exist() -> None:
    store = Store()
    publications = made(store)
    for number in (3, 4):
        publications.begin(order())
        assert await state_of(publications) == {"state": "published", "version": f"digits@{number}", **RESULT}
    publications.begin(order("web"))
    assert (await state_of(publications, "web"))["version"] == "web@1"


async def test_volumes_of_others_and_complete_versions_are_passed_over() -> None:
    store = Store(digits_v1=None, digits_v2=TAKEN, digits_v3=None)
    publications = made(store, Shares())
    publications.begin(order())
    assert (await state_of(publications))["version"] == "digits@4"
    assert store.asked == ["digits@1", "digits@2", "digits@3", "digits@4"]
    publications.begin(order())
    assert (await state_of(publications))["version"] == "digits@5"


async def test_the_number_of_a_failed_publication_is_used_again() -> None:
    store = Store(digits_v3=Ended(status=1, outcome='{"error": "No space left on device"}'))
    publications = made(store)
    publications.begin(order())
    assert await state_of(publications) == {"state": "failed", "message": "No space left on device"}
    store.ends = {}
    publications.begin(order())
    assert (await state_of(publications))["version"] == "digits@3"


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (PublicationError("no engine"), "no engine"),
        (Ended(status=137, outcome=""), "ended with status 137: it printed nothing"),
        (Ended(status=1, outcome="Traceback\nMemoryError"), "ended with status 1: Traceback?MemoryError"),
        (Ended(status=0, outcome="[]"), "ended with status 0: []"),
        (ValueError("a bug"), "the hub has an error, which its log shows"),
    ],
)
async def test_a_failure_is_explained(end: Any, message: str) -> None:
    publications = made(Store(digits_v3=end))
    publications.begin(order())
    state = await state_of(publications)
    assert (state["state"], message in state["message"]) == ("failed", True), state


async def test_a_data_set_has_one_publication_at_a_time() -> None:
    store = Store()
    store.may_end.clear()
    publications = made(store)
    publications.begin(order())
    with pytest.raises(PublicationError, match="another version of 'digits' is being published"):
        publications.begin(order(user="grace"))
    publications.begin(order("web", user="grace"))
    assert publications.state_of("ada", "digits") == {"state": "copying"}
    store.may_end.set()
    assert (await state_of(publications))["version"] == "digits@3"
    assert (await state_of(publications, "web", user="grace"))["version"] == "web@1"


async def test_a_user_has_one_publication_at_a_time() -> None:
    store = Store()
    store.may_end.clear()
    publications = made(store)
    publications.begin(order())
    with pytest.raises(PublicationError, match="you are publishing 'digits'; try again when it is done"):
        publications.begin(order("web"))
    store.may_end.set()
    await state_of(publications)
    publications.begin(order("web"))
    assert (await state_of(publications, "web"))["version"] == "web@1"


async def test_users_see_their_own_publications() -> None:
    publications = made(Store())
    assert publications.state_of("ada", "digits") is None
    publications.begin(order())
    done = await state_of(publications)
    assert publications.state_of("grace", "digits") is None
    publications.begin(order(user="grace"))
    assert (await state_of(publications, user="grace"))["version"] == "digits@4"
    assert publications.state_of("ada", "digits") == done


@pytest.mark.parametrize("name", ["farandole", "farandole-home-ada"])
async def test_no_version_has_the_name_of_another_volume_of_the_hub(name: str) -> None:
    store = Store()
    with pytest.raises(PublicationError, match="begins like the names of the hub's own volumes"):
        made(store).begin(order(name))
    assert store.asked == []
