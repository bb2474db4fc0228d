"""Tests for the addresses of streams."""

from __future__ import annotations

import pytest
from farandole.exceptions import UsageError
from farandole.streams.address import check_pair, parse_source, parse_target


@pytest.mark.parametrize(
    ("text", "kind", "server", "subject"),
    [
        ("calls", "nats", "", "calls"),
        ("lab.calls.*", "nats", "", "lab.calls.*"),
        ("calls.>", "nats", "", "calls.>"),
        ("nats:///calls", "nats", "", "calls"),
        ("nats://broker.example.org:4222/calls", "nats", "nats://broker.example.org:4222", "calls"),
        ("tls://broker.example.org/calls", "nats", "tls://broker.example.org", "calls"),
        ("redis://127.0.0.1:6379/calls", "redis", "redis://127.0.0.1:6379", "calls"),
        ("rediss://redis.example.org/lab:calls", "redis", "rediss://redis.example.org", "lab:calls"),
        ("kafka://127.0.0.1:9092/calls", "kafka", "kafka://127.0.0.1:9092", "calls"),
    ],
)
def test_an_address_has_a_broker_and_a_subject(text: str, kind: str, server: str, subject: str) -> None:
    found = parse_source(text)
    assert (found.kind, found.server, found.subject, str(found)) == (kind, server, subject, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a subject of NATS"),
        ("my calls", "not a subject of NATS"),
        ("calls..late", "not a subject of NATS"),
        (".calls", "not a subject of NATS"),
        ("calls.>.late", "not a subject of NATS"),
        ("calls.{label}", "not a subject of NATS"),
        ("http://broker.example.org/calls", "the scheme must be one of nats, tls, redis, rediss, kafka"),
        ("redis:///calls", "names no server; write redis://HOST:PORT/NAME"),
        ("redis://127.0.0.1:6379/", "not the name of a stream of Redis"),
        ("kafka://127.0.0.1:9092/my/topic", "not a topic of Kafka"),
        ("nats://ada:secret@broker.example.org/calls", "write them to a file, and name it with `--credentials`"),
        ("nats://broker.example.org:port/calls", "is not a URL"),
        ("nats://broker.example.org/calls?x=1", "without '\\?' and '#'"),
        ("redis://127.0.0.1:6379/calls?password=secret", "without '\\?' and '#'"),
        ("nats://broker.example.org/my\ncalls", "has characters that are not printable"),
        ("calls\x00", "has characters that are not printable"),
        ("calls\x7f", "has characters that are not printable"),
        (201 * "a", "has 201 characters; it may have at most 200"),
    ],
)
def test_a_wrong_source_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_source(text)


@pytest.mark.parametrize(
    "text",
    [
        "nats://ada:secret@broker.example.org/calls",
        "http://ada:secret@broker.example.org/calls",
        "nats://ada:secret@broker.example.org:port/calls",
        "nats://ada:secret@[broker/calls",
        "nats://ada:sec/secret@broker.example.org/calls",
        "redis://127.0.0.1:6379/my calls?password=secret",
        "redis:///calls#secret",
    ],
)
def test_an_error_about_an_address_with_a_password_does_not_contain_it(text: str) -> None:
    for parse in (parse_source, parse_target):
        with pytest.raises(UsageError) as caught:
            parse(text)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decisions.*", "not a subject of NATS"),
        ("decisions-{label}", "must be a word between dots"),
        ("{label}.{label}", "must be there only once"),
    ],
)
def test_a_wrong_target_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "label", "subject", "base"),
    [
        ("decisions", "late", "decisions", "decisions"),
        ("decisions.{label}", "late", "decisions.late", "decisions"),
        ("decisions.{label}", "a b.c>", "decisions.a_b_c_", "decisions"),
        ("decisions.{label}", "", "decisions._", "decisions"),
        ("lab.{label}.out", "late", "lab.late.out", "lab.out"),
        ("redis://127.0.0.1:6379/x-{label}", "late", "x-late", "x-"),
        ("decisions.{label}", "日本", "decisions.日本", "decisions"),
        ("decisions.{label}", "中国", "decisions.中国", "decisions"),
        ("redis://127.0.0.1:6379/x.{label}", "Straße 7", "x.Straße_7", "x"),
        ("kafka://127.0.0.1:9092/x.{label}", "Straße 7", "x.Stra_e_7", "x"),
    ],
)
def test_the_label_becomes_a_word_of_the_subject(text: str, label: str, subject: str, base: str) -> None:
    found = parse_target(text)
    assert (found.of_label(label), found.base) == (subject, base)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("calls", "nats://broker.example.org/decisions", "are at different brokers"),
        ("redis://127.0.0.1:6379/calls", "kafka://127.0.0.1:6379/decisions", "are at different brokers"),
        ("calls", "calls", "would be scored again"),
        ("calls.>", "calls.{label}", "would be scored again"),
        ("*", "{label}", "would be scored again"),
        ("decisions.sales", "decisions.{label}", "would be scored again"),
        ("*.sales", "decisions.{label}", "would be scored again"),
        ("lab.*.late", "lab.{label}.late", "would be scored again"),
        ("dead-letter.decisions", "decisions", "includes 'dead-letter.decisions', where `--to decisions` puts"),
        ("dead-letter.decisions", "decisions.{label}", "includes 'dead-letter.decisions'"),
        ("*.decisions", "decisions", "includes 'dead-letter.decisions'"),
        ("*.>", "decisions", "includes 'dead-letter.decisions'"),
        ("redis://h:1/a", "redis://h:1/a", "would be scored again"),
        ("redis://h:1/d.sales", "redis://h:1/d.{label}", "would be scored again"),
        ("redis://h:1/dead-letter.d", "redis://h:1/d", "includes 'dead-letter.d'"),
        ("kafka://h:1/d.sales", "kafka://h:1/d.{label}", "would be scored again"),
    ],
)
def test_records_cannot_go_from_a_source_to_this_target(source: str, target: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_pair(parse_source(source), parse_target(target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("calls.*", "calls.scored.late"),
        ("nats:///calls", "decisions.{label}"),
        ("calls", "calls.{label}"),
        ("calls.>", "calls"),
        ("calls.*.late", "calls.{label}"),
        ("redis://h:1/a.*", "redis://h:1/a.b"),
        ("redis://h:1/*", "redis://h:1/b"),
        ("redis://h:1/d.a.b", "redis://h:1/d.{label}"),
        ("kafka://h:1/decisions", "kafka://h:1/decisions.{label}"),
    ],
)
def test_records_can_go_to_another_subject_of_the_same_broker(source: str, target: str) -> None:
    check_pair(parse_source(source), parse_target(target))
