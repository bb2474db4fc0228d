"""Where records of a stream come from and go to: the values of `%serve --from` and `--to`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from urllib.parse import urlsplit

from farandole.exceptions import UsageError
from farandole.reading import printable

LABEL = "{label}"
"""Stands in a target for the label that the model has given a record."""
DEAD_LETTER = "dead-letter"
"""The first word of the name of the stream for records that could not be scored."""
SCHEMES = {"nats": "nats", "tls": "nats", "redis": "redis", "rediss": "redis", "kafka": "kafka"}
"""The kind of broker, by the scheme of its URL."""
FORMS = {
    "nats": re.compile(r"[^\s.*>{}]+(\.[^\s.*>{}]+)*"),
    "redis": re.compile(r"[^\s{}]+"),
    "kafka": re.compile(r"[A-Za-z0-9._-]{1,249}"),
}
"""What names a stream of a broker, with a word in place of ``{label}``."""
NATS_SOURCE = re.compile(r"(\*|[^\s.*>{}]+)(\.(\*|[^\s.*>{}]+))*(\.>)?")
"""A subject of NATS to read from, which may have wildcards."""
MOST_CHARACTERS = 200
NAMES = {
    "nats": "a subject of NATS: words with dots between them, without spaces, '*', '>' and braces",
    "redis": "the name of a stream of Redis, without spaces and braces",
    "kafka": "a topic of Kafka: letters, digits, '.', '_' and '-'",
}


@dataclass(frozen=True, kw_only=True)
class StreamAddress:
    """A stream at a broker.

    Attributes:
        text: the address as the user has written it.
        kind: ``nats``, ``redis`` or ``kafka``.
        server: the URL of the broker without the stream, or an empty string for the hub's own broker.
        subject: the subject, stream or topic.
    """

    text: str
    kind: str
    server: str
    subject: str

    def __str__(self) -> str:
        return self.text

    @property
    def dead_letters(self) -> str:
        """The subject, stream or topic for records that could not be scored."""
        return f"{DEAD_LETTER}.{self.base}"

    @property
    def base(self) -> str:
        """The subject without ``{label}`` and the dot beside it."""
        return re.sub(r"\.{2,}", ".", self.subject.replace(LABEL, "")).strip(".") or "records"

    def of_label(self, label: str) -> str:
        """Return the subject for records with a label.

        Characters of the label that are no letters and digits of any script become ``_``. Topics of Kafka are ASCII.
        """
        ascii_only = re.ASCII if self.kind == "kafka" else re.NOFLAG
        return self.subject.replace(LABEL, re.sub(r"[^\w-]", "_", label, flags=ascii_only) or "_")


def parse_source(text: str) -> StreamAddress:
    """Parse the address of records to score. Raises UsageError if it is not valid."""
    found = _parse(text, "--from")
    if found.kind == "nats" and NATS_SOURCE.fullmatch(found.subject):
        return found
    _check(found, found.subject, "--from")
    return found


def parse_target(text: str) -> StreamAddress:
    """Parse the address of scored records, which may contain ``{label}``. Raises UsageError if it is not valid."""
    found = _parse(text, "--to")
    if found.kind == "nats" and any(LABEL in word and word != LABEL for word in found.subject.split(".")):
        raise UsageError(f"`--to {text}`: {LABEL} must be a word between dots, such as decisions.{LABEL}")
    if found.subject.count(LABEL) > 1:
        raise UsageError(f"`--to {text}`: {LABEL} must be there only once")
    _check(found, found.of_label("label"), "--to")
    return found


def check_pair(source: StreamAddress, target: StreamAddress) -> None:
    """Raise UsageError if records cannot go from the source to the target, or would come back to the source."""
    if (source.kind, source.server) != (target.kind, target.server):
        raise UsageError(
            f"`--from {source}` and `--to {target}` are at different brokers; both must be at the same one, so that no "
            "record is lost or scored twice"
        )
    if _share(source, target.subject):
        raise UsageError(
            f"`--to {target}` would be scored again, because `--from {source}` includes it; choose another"
        )
    if _share(source, target.dead_letters):
        raise UsageError(
            f"`--from {source}` includes {target.dead_letters!r}, where `--to {target}` puts records that could not be "
            "scored; they would be scored again and again; choose another"
        )


def _parse(text: str, option: str) -> StreamAddress:
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"`{option}` has {len(text)} characters; it may have at most {MOST_CHARACTERS}")
    # urlsplit removes some of these characters.
    if not text.isprintable():
        raise UsageError(f"`{option} {printable(text)}` has characters that are not printable, such as line breaks")
    if "://" not in text:
        return StreamAddress(text=text, kind="nats", server="", subject=text)
    _refuse_secrets(text, option)
    try:
        url = urlsplit(text)
        named = bool(url.netloc) and url.port != 0
    except ValueError as exc:
        raise UsageError(f"`{option} {text}` is not a URL: {exc}") from exc
    if url.scheme not in SCHEMES:
        raise UsageError(f"`{option} {text}`: the scheme must be one of {', '.join(SCHEMES)}")
    if not named and url.scheme != "nats":
        raise UsageError(f"`{option} {text}` names no server; write {url.scheme}://HOST:PORT/NAME")
    server = f"{url.scheme}://{url.netloc}" if named else ""
    return StreamAddress(text=text, kind=SCHEMES[url.scheme], server=server, subject=url.path.lstrip("/"))


def _refuse_secrets(text: str, option: str) -> None:
    """Raise UsageError, without the text, if a URL may contain a password, also if it is not valid otherwise."""
    if "@" in text:
        raise UsageError(
            f"`{option}` contains a name or a password before '@', which would be saved with the notebook; write them "
            "to a file, and name it with `--credentials`"
        )
    if "?" in text or "#" in text:
        raise UsageError(f"`{option}` must end with the name of the stream, without '?' and '#'")


def _check(address: StreamAddress, name: str, option: str) -> None:
    if FORMS[address.kind].fullmatch(name) is None:
        raise UsageError(f"`{option} {address}`: {name!r} is not {NAMES[address.kind]}")


def _share(source: StreamAddress, target: str) -> bool:
    """Return whether records of a subject, stream or topic, with any label in it, are records of the source."""
    if source.kind == "nats":
        return _meet(source.subject.split("."), target.replace(LABEL, "*").split("."))
    pattern = re.escape(target).replace(re.escape(LABEL), r"[\w-]+")
    return re.fullmatch(pattern, source.subject) is not None


def _meet(words: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether two subjects of NATS with wildcards include a common one. Only the first may have ``>``."""
    for word, other in zip_longest(words, others):
        if word is None or other is None:
            return False
        if word == ">":
            return True
        if word != other and "*" not in {word, other}:
            return False
    return True
