"""Names of images in registries, such as ``registry.example.org/lab/iris:3``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from farandole.exceptions import UsageError

SCHEME = re.compile(r"(?:(?P<scheme>https?)://)?(?P<rest>.+)")
HOST = r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
DIGEST = r"sha256:[0-9a-f]{64}"
NAME = re.compile(rf"(?P<host>{HOST})/(?P<repository>{PART}(?:/{PART})*)(?::(?P<tag>{TAG}))?(?:@(?P<digest>{DIGEST}))?")
"""Source: https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pulling-manifests"""
LOOPBACK = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The name of an image. ``tag`` or ``digest`` may be empty.

    Attributes:
        host: the registry, with its port if it has one.
        repository: the name in the registry, such as ``lab/iris``.
        tag: the tag, such as ``3``.
        digest: the digest of the manifest, with ``sha256:``.
        scheme: ``https``, or ``http`` for a registry without TLS.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""
    scheme: str = "https"

    def __str__(self) -> str:
        tag, digest = self.tag and f":{self.tag}", self.digest and f"@{self.digest}"
        return f"{self.host}/{self.repository}{tag}{digest}"

    @property
    def wanted(self) -> str:
        """What the manifest is asked for with: the digest, or else the tag."""
        return self.digest or self.tag or "latest"


def is_reference(text: str) -> bool:
    """Return whether a text names an image in a registry, and not a model in the store or in a group's folder."""
    host, slash, _ = text.rpartition("://")[2].partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


def parse_reference(text: str) -> Reference:
    """Parse the name of an image in a registry. Raises UsageError if it is not valid.

    As in Docker, registries at loopback addresses have no TLS. For others without TLS, write ``http://`` in front.
    """
    match = SCHEME.fullmatch(text)
    name = NAME.fullmatch(match["rest"]) if match and is_reference(text) else None
    if match is None or name is None:
        raise UsageError(
            f"{text!r} does not name an image in a registry; write the registry, the repository in lower case and a "
            "tag, such as registry.example.org/lab/iris:3"
        )
    # Addresses that a registry sends have the host in lower case.
    host = name["host"].lower()
    scheme = match["scheme"] or ("http" if LOOPBACK.fullmatch(host) else "https")
    return Reference(
        host=host,
        repository=name["repository"],
        tag=name["tag"] or "",
        digest=name["digest"] or "",
        scheme=scheme,
    )
