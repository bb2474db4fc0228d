"""Tests that passwords are hashed outside the event loop, a few at a time, and at the same cost without an account."""

from __future__ import annotations

import asyncio
import threading

import bcrypt
import pytest
from tornado.web import HTTPError

from spawner_config.access.passwords import DUMMY, PasswordHasher

PASSWORD = "a long enough one"


class Slow:
    """A replacement for bcrypt's comparison. It records the hashes, and blocks until the test sets ``go``."""

    def __init__(self, monkeypatch):
        self.hashes = []
        self.go = threading.Event()
        monkeypatch.setattr(bcrypt, "checkpw", self)

    def __call__(self, password, hashed):
        self.hashes.append(hashed)
        assert self.go.wait(30)
        return True


async def test_a_login_does_not_block_the_event_loop(monkeypatch):
    slow = Slow(monkeypatch)
    asking = asyncio.ensure_future(PasswordHasher().matches(PASSWORD, DUMMY))
    async with asyncio.timeout(30):
        while not slow.hashes:
            await asyncio.sleep(0.01)
    # The event loop has kept running during the comparison, which cannot end before `go` is set.
    slow.go.set()
    assert await asking


async def test_without_an_account_a_dummy_is_hashed_and_nothing_matches(monkeypatch):
    slow = Slow(monkeypatch)
    slow.go.set()
    assert not await PasswordHasher().matches(PASSWORD, None)
    assert slow.hashes == [DUMMY]


async def test_the_dummy_costs_as_much_as_a_real_hash():
    hasher = PasswordHasher()
    made = await hasher.hash(PASSWORD)
    assert made[:7] == DUMMY[:7]
    assert await hasher.matches(PASSWORD, made)
    assert not await hasher.matches("another one", made)


async def test_too_many_logins_at_once_are_refused_and_the_others_end(monkeypatch):
    slow = Slow(monkeypatch)
    hasher = PasswordHasher(threads=1, most_waiting=1)
    two = [asyncio.ensure_future(hasher.matches(PASSWORD, DUMMY)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(HTTPError, match="429.*Too many people are logging in.*Try again"):
        await hasher.matches(PASSWORD, DUMMY)
    slow.go.set()
    assert await asyncio.gather(*two) == [True, True]
    assert await hasher.matches(PASSWORD, DUMMY)
