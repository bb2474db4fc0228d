"""Talks to a registry of container images, by the API of the OCI distribution specification.

Source: https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin

import requests
from requests.utils import parse_dict_header

from farandole.exceptions import RegistryDeniedError, RegistryError
from farandole.reading import SMALL_JSON_BYTES, parse_json
from farandole.registry.credentials import login_for
from farandole.registry.reference import Reference
from farandole.registry.transport import PAUSES, Transport, shown

RACES = (HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)
"""The statuses with which a registry may refuse a manifest that another client stores at the same time."""
MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest as a registry stores it.

    Attributes:
        content: the bytes, whose digest names it.
        media_type: its media type.
    """

    content: bytes
    media_type: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, with ``sha256:``."""
        return digest_of(self.content)

    def parsed(self) -> dict[str, Any]:
        """Return the JSON object. Raises RegistryError if it is not valid."""
        try:
            return parse_json(self.content, "its content")
        except ValueError as exc:
            raise RegistryError(f"the manifest {self.digest} is damaged: {exc}.") from exc


@dataclass(frozen=True)
class Scope:
    """What a request needs a permission for: to read a repository, to write it, or to mount blobs of ``source``."""

    repository: str
    push: bool = False
    source: str = ""

    def names(self) -> list[str]:
        """Return the scopes of a token.

        Source: https://distribution.github.io/distribution/spec/auth/scope/
        """
        own = f"repository:{self.repository}:{'pull,push' if self.push else 'pull'}"
        return [own, *([f"repository:{self.source}:pull"] if self.source else [])]


@dataclass
class Registry:
    """One registry.

    Attributes:
        host: the registry, with its port if it has one.
        scheme: ``https`` or ``http``.
        sent: the bytes of blobs that were uploaded.
        login: the user and the password, or None for the login that ``docker login`` has stored.
    """

    host: str
    scheme: str
    # Tracebacks can show the representation, so it has no password.
    login: tuple[str, str] | None = field(default=None, repr=False)
    sent: int = 0
    _tokens: dict[Scope, str] = field(default_factory=dict, repr=False)
    """The values of the header Authorization by scope."""

    def __post_init__(self) -> None:
        self._transport = Transport(host=self.host, scheme=self.scheme)

    @classmethod
    def of(cls, reference: Reference, login: tuple[str, str] | None = None) -> Registry:
        """Return the registry of an image."""
        return cls(reference.host, reference.scheme, login)

    def manifest(self, repository: str, wanted: str) -> Manifest | None:
        """Return the manifest with a tag or a digest, or None if there is none.

        Raises RegistryError if its content does not have the digest.
        """
        path = f"{repository}/manifests/{wanted}"
        with self._send("GET", path, Scope(repository), headers={"Accept": ", ".join(MANIFEST_TYPES)}) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            self._transport.check(response, f"{self.host}/{repository} with {wanted}")
            content = b"".join(self._transport.read(response, SMALL_JSON_BYTES))
        found = Manifest(content=content, media_type=response.headers.get("Content-Type", "").partition(";")[0])
        if wanted.startswith("sha256:") and found.digest != wanted:
            raise RegistryError(f"{self.host} answered with another manifest than {wanted}.")
        return found

    def put_manifest(self, repository: str, wanted: str, manifest: Manifest) -> None:
        """Store a manifest under a tag."""
        headers = {"Content-Type": manifest.media_type}
        path, scope = f"{repository}/manifests/{wanted}", Scope(repository, push=True)
        for pause in (*PAUSES, 0.0):
            with self._send("PUT", path, scope, headers=headers, data=manifest.content) as response:
                if not pause or response.status_code not in RACES:
                    self._transport.check(response, f"{self.host}/{repository}:{wanted}")
                    return
            time.sleep(pause)

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return whether a repository has a blob."""
        with self._send("HEAD", f"{repository}/blobs/{digest}", Scope(repository)) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return False
            self._transport.check(response, f"{self.host}/{repository}@{digest}")
            return True

    def blob(self, repository: str, digest: str, size: int) -> Iterator[bytes]:
        """Return the content of a blob in pieces.

        Raises RegistryError, at its end, if it does not have this digest, or has more than ``size`` bytes.
        """
        with self._send("GET", f"{repository}/blobs/{digest}", Scope(repository)) as response:
            self._transport.check(response, f"{self.host}/{repository}@{digest}")
            found = hashlib.sha256()
            for piece in self._transport.read(response, size):
                found.update(piece)
                yield piece
        if f"sha256:{found.hexdigest()}" != digest:
            raise RegistryError(f"{self.host} answered with another content than {digest}.")

    def mount(self, repository: str, digest: str, source: str) -> bool:
        """Let a repository have a blob of another one of this registry. Return whether the registry could do this."""
        scope = Scope(repository, push=True, source=source)
        query = {"mount": digest, "from": source}
        with self._send("POST", f"{repository}/blobs/uploads/", scope, params=query) as response:
            self._transport.check(response, f"{self.host}/{repository}")
            if response.status_code == HTTPStatus.CREATED:
                return True
            # The registry has begun an upload instead, which nobody will continue.
            location = self._transport.location(response)
        with suppress(RegistryError):
            self._send("DELETE", location, scope).close()
        return False

    def upload(self, repository: str, digest: str, size: int, content: Iterator[bytes]) -> None:
        """Upload a blob. One that breaks off leaves nothing that can be seen; registries remove it after some days."""
        scope = Scope(repository, push=True)
        with self._send("POST", f"{repository}/blobs/uploads/", scope) as response:
            self._transport.check(response, f"{self.host}/{repository}")
            location = self._transport.location(response)
        query = {"digest": digest}
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with self._send("PUT", location, scope, params=query, headers=headers, data=_Sized(content, size)) as response:
            self._transport.check(response, f"{self.host}/{repository}@{digest}")
        self.sent += size

    def _send(self, method: str, path: str, scope: Scope, **request: Any) -> requests.Response:
        """Send a request, after a login if the registry asks for one.

        Tokens expire, so a request that was refused gets another one. The content of an upload can only be sent once.
        """
        url = urljoin(f"{self.scheme}://{self.host}/v2/", path)
        response = self._transport.send(method, url, self._tokens.get(scope, ""), **request)
        # A host to which the registry has redirected does not get the login, and may not say where to send it.
        is_own = self._transport.is_own(response.url)
        if response.status_code != HTTPStatus.UNAUTHORIZED or not is_own or isinstance(request.get("data"), _Sized):
            return response
        authorization = self._authorization(response, scope)
        if authorization == self._tokens.get(scope):
            return response
        self._tokens[scope] = authorization
        response.close()
        return self._transport.send(method, url, authorization, **request)

    def _authorization(self, response: requests.Response, scope: Scope) -> str:
        """Return the value of the header Authorization that a registry asks for.

        Source: https://distribution.github.io/distribution/spec/auth/token/
        """
        asked = response.headers.get("WWW-Authenticate", "nothing")
        kind, _, rest = asked.partition(" ")
        login = self.login or login_for(self.host)
        if kind.lower() == "basic":
            if login is None:
                raise RegistryDeniedError(f"{self.host} asks for a login.")
            return _basic(login)
        challenge = parse_dict_header(rest)
        realm = challenge.get("realm") or ""
        if kind.lower() != "bearer" or not realm.startswith(("https://", f"{self.scheme}://")):
            raise RegistryError(f"{self.host} asks for a login of an unknown kind: {shown(asked)}.")
        return f"Bearer {self._token(realm, challenge.get('service') or self.host, scope, login)}"

    def _token(self, realm: str, service: str, scope: Scope, login: tuple[str, str] | None) -> str:
        """Return a token from the server that a registry names."""
        query, headers = {"service": service, "scope": scope.names()}, {"Authorization": _basic(login)} if login else {}
        with self._transport.send_once("GET", realm, params=query, headers=headers) as answer:
            self._transport.check(answer, shown(realm))
            content = b"".join(self._transport.read(answer, SMALL_JSON_BYTES))
        try:
            found = parse_json(content, "the token")
        except ValueError as exc:
            raise RegistryError(f"{shown(realm)} gave no token: {exc}.") from exc
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryError(f"{shown(realm)} gave no token.")
        return token


class _Sized:
    """The body of an upload, whose size is known, so that it is not sent in chunks."""

    def __init__(self, content: Iterator[bytes], size: int) -> None:
        self._content = content
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._content


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _basic(login: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(login).encode()).decode()
