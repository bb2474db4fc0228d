"""Tests that the stored log of a worker's server is limited in size, and that chunks contain only whole characters."""

import logging
import re

import pytest
from farandole.server.worker import logbook
from farandole.server.worker.logbook import LogBook, whole_characters


@pytest.fixture
def log():
    logger = logging.Logger("ServerApp")  # noqa: LOG001 - one of this test alone
    logger.addHandler(LogBook())
    return logger


def test_the_log_is_readable_from_any_offset(log):
    [book] = log.handlers
    assert book.read(0) == {"offset": 0, "next": 0, "size": 0, "text": ""}
    log.info("Kernel started: %s", "rank-0")
    first = book.read(0)
    assert first["text"].startswith("[I ")
    assert first["text"].endswith("ServerApp] Kernel started: rank-0\n")
    log.warning("größer")
    second = book.read(first["next"])
    assert (second["offset"], second["next"]) == (first["size"], second["size"])
    assert second["text"].endswith("größer\n")
    assert book.read(second["next"])["text"] == ""
    assert book.read(-8)["text"] == "rößer\n"[-7:]
    assert book.read(10**9)["offset"] == second["size"]


def test_the_times_name_their_zone(log, set_zone):
    set_zone("Asia/Bangkok")
    log.info("Kernel started")
    assert re.fullmatch(
        r"\[I [-0-9]{10} [:0-9]{8} UTC\+07:00 ServerApp\] Kernel started\n", log.handlers[0].read(0)["text"]
    )


def test_an_invalid_log_call_does_not_raise(log, capsys):
    log.info("%d", "x")
    log.info("next")
    [book] = log.handlers
    assert book.read(0)["text"].endswith("ServerApp] next\n")
    assert book.read(0)["text"].count("\n") == 1
    assert "--- Logging error ---" in capsys.readouterr().err


def test_requests_for_the_log_are_not_logged(log):
    [book] = log.handlers
    for path in ("look", "log?offset=-16000"):
        log.info("200 GET /user/ada/main-w0/farandole/%s (ada@127.0.0.1) 1.10ms", path)
    log.debug("Checking the identity of somebody")
    log.info("200 GET /user/ada/main-w0/farandole/worker (ada@127.0.0.1) 1.10ms")
    log.warning("403 GET /user/ada/main-w0/farandole/look (@127.0.0.1) 1.10ms")
    assert [line.partition("GET ")[2].split()[0] for line in book.read(0)["text"].splitlines()] == [
        "/user/ada/main-w0/farandole/worker",
        "/user/ada/main-w0/farandole/look",
    ]


def test_the_log_is_bounded_and_drops_complete_lines(log, monkeypatch):
    monkeypatch.setattr(logbook, "KEPT_BYTES", 1000)
    [book] = log.handlers
    for number in range(100):
        log.info("line %d", number)
    kept = book.read(0)
    assert kept["next"] == kept["size"]
    assert 900 < kept["next"] - kept["offset"] <= 1000
    assert kept["text"].startswith("[I ")
    assert kept["text"].endswith("line 99\n")


def test_a_long_log_is_sent_in_parts(log, monkeypatch):
    monkeypatch.setattr(logbook, "LOG_CHUNK_BYTES", 101)
    [book] = log.handlers
    for _ in range(20):
        log.info("größer… 🙂")
    text, offset = "", 0
    while (chunk := book.read(offset))["text"]:
        text, offset = text + chunk["text"], chunk["next"]
    assert offset == book.read(0)["size"]
    assert text.count("größer… 🙂\n") == 20


@pytest.mark.parametrize("text", ["a", "ä", "…", "🙂", "aä…🙂"])
def test_no_character_is_split(text):
    data = text.encode()
    for length in range(len(data) + 1):
        cut = whole_characters(data[:length])
        assert text.startswith(cut.decode())
        assert length - len(cut) < 4
    assert whole_characters(data) == data


def test_invalid_text_is_not_held_back_forever():
    assert whole_characters(b"\x80\x80\x80\x80\x80") == b"\x80\x80\x80\x80\x80"
