"""The number of named servers of a user."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spawner_config.limits.servers import NamedServerLimit
from spawner_config.profiles.limits import Limits

LIMIT = NamedServerLimit(Limits(workers_per_user=2, notebooks_per_user=1, ranks_per_worker=1))


class Database:
    def __init__(self, records: dict[str, Any]) -> None:
        self.records = records

    def delete(self, record: Any) -> None:
        del self.records[record.name]

    def commit(self) -> None:
        pass


def handler(*names: str, active: tuple[str, ...] = ()) -> tuple[Any, dict[str, Any]]:
    records = {name: SimpleNamespace(name=name) for name in ("", *names)}
    user = SimpleNamespace(orm_spawners=records, spawners=dict.fromkeys(active), db=Database(records))
    found = SimpleNamespace(path_args=["ada", "new-w0"], find_user={"ada": user}.get, current_user=user)
    return found, records


def test_a_user_has_no_more_named_servers_than_workers_and_notebooks() -> None:
    asked, records = handler("one", "two", "three")
    assert LIMIT(asked) == 3
    # Nothing of the user is removed but workers.
    assert list(records) == ["", "one", "two", "three"]


def test_records_of_stopped_workers_make_room_for_new_ones() -> None:
    asked, records = handler("old-w0", "old-w1", "old-w2", "paper", active=("old-w1",))
    assert LIMIT(asked) == 3
    assert list(records) == ["", "old-w1", "paper"]


def test_records_stay_while_there_is_room() -> None:
    asked, records = handler("old-w0", "old-w1")
    assert LIMIT(asked) == 3
    assert list(records) == ["", "old-w0", "old-w1"]


def test_the_home_page_and_unknown_users_have_the_same_limit() -> None:
    asked, _ = handler()
    asked.path_args = []
    assert LIMIT(asked) == 3
    asked.path_args = ["nobody", "x"]
    assert LIMIT(asked) == 3
