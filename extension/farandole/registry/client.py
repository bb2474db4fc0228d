"""Talks to a registry of container images, by the API of the OCI distribution specification.

Source: https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import parse_dict_header
from urllib3 import Retry

from farandole.exceptions import RegistryDeniedError, RegistryError
from farandole.reading import SMALL_JSON_BYTES, parse_json, printable
from farandole.registry.credentials import login_for
from farandole.registry.reference import Reference

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
CHUNK_BYTES = 2**16
"""Pieces of an upload are small, because each must be sent within `CONNECT_SECONDS` on slow networks, too."""
# A registry may answer 500 to a request that reads what another client writes at the same time.
RETRIES = Retry(
    4,
    connect=0,
    read=False,
    other=0,
    allowed_methods=("GET", "HEAD"),
    status_forcelist=(500, 502, 503, 504),
    backoff_factor=0.1,
    respect_retry_after_header=False,
    raise_on_status=False,
)
RACES = (HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)
PAUSES = (0.1, 0.3, 0.9)
"""The statuses with which a registry may refuse a manifest that another client stores at the same time, and the seconds
before further attempts."""
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
    login: tuple[str, str] | None = None
    sent: int = 0
    _session: requests.Session = field(default_factory=requests.Session)
    _tokens: dict[Scope, str] = field(default_factory=dict)
    """The values of the header Authorization by scope."""

    def __post_init__(self) -> None:
        # Otherwise requests replaces the header Authorization by a login from ~/.netrc.
        self._session.auth = lambda request: request
        self._session.mount(f"{self.scheme}://", HTTPAdapter(max_retries=RETRIES))

    @classmethod
    def of(cls, reference: Reference, login: tuple[str, str] | None = None) -> Registry:
        """Return the registry of an image."""
        return cls(reference.host, reference.scheme, login)

    def manifest(self, repository: str, wanted: str) -> Manifest | None:
        """Return the manifest with a tag or a digest, or None if there is none.

        Raises RegistryError if its content does not have the digest.
        """
        path = f"{repository}/manifests/{wanted}"
        response = self._send(
            "GET", path, Scope(repository), headers={"Accept": ", ".join(MANIFEST_TYPES)}, stream=True
        )
        with response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            self._check(response, f"{self.host}/{repository} with {wanted}")
            content = b"".join(self._read(response, SMALL_JSON_BYTES))
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
                    self._check(response, f"{self.host}/{repository}:{wanted}")
                    return
            time.sleep(pause)

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return whether a repository has a blob."""
        with self._send("HEAD", f"{repository}/blobs/{digest}", Scope(repository)) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return False
            self._check(response, f"{self.host}/{repository}@{digest}")
            return True

    def blob(self, repository: str, digest: str, size: int) -> Iterator[bytes]:
        """Return the content of a blob in pieces.

        Raises RegistryError, at its end, if it does not have this digest, or has more than ``size`` bytes.
        """
        with self._send("GET", f"{repository}/blobs/{digest}", Scope(repository), stream=True) as response:
            self._check(response, f"{self.host}/{repository}@{digest}")
            found = hashlib.sha256()
            for piece in self._read(response, size):
                found.update(piece)
                yield piece
        if f"sha256:{found.hexdigest()}" != digest:
            raise RegistryError(f"{self.host} answered with another content than {digest}.")

    def mount(self, repository: str, digest: str, source: str) -> bool:
        """Let a repository have a blob of another one of this registry. Return whether the registry could do this."""
        scope = Scope(repository, push=True, source=source)
        query = {"mount": digest, "from": source}
        with self._send("POST", f"{repository}/blobs/uploads/", scope, params=query) as response:
            self._check(response, f"{self.host}/{repository}")
            if response.status_code == HTTPStatus.CREATED:
                return True
            # The registry has begun an upload instead, which nobody will continue.
            location = self._location(response)
        with suppress(RegistryError):
            self._send("DELETE", location, scope).close()
        return False

    def upload(self, repository: str, digest: str, size: int, content: Iterator[bytes]) -> None:
        """Upload a blob. One that breaks off leaves nothing that can be seen; registries remove it after some days."""
        scope = Scope(repository, push=True)
        with self._send("POST", f"{repository}/blobs/uploads/", scope) as response:
            self._check(response, f"{self.host}/{repository}")
            location = self._location(response)
        query = {"digest": digest}
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with self._send("PUT", location, scope, params=query, headers=headers, data=_Sized(content, size)) as response:
            self._check(response, f"{self.host}/{repository}@{digest}")
        self.sent += size

    def _location(self, response: requests.Response) -> str:
        location = response.headers.get("Location")
        if not location:
            raise RegistryError(f"{self.host} did not say where to upload to; is it a registry?")
        return urljoin(response.url, location)

    def _read(self, response: requests.Response, most: int) -> Iterator[bytes]:
        count = 0
        try:
            for piece in response.iter_content(CHUNK_BYTES):
                count += len(piece)
                if count > most:
                    raise RegistryError(f"{self.host} answered with more than {most} bytes.")
                yield piece
        except requests.RequestException as exc:
            raise self._unreachable(exc) from exc

    def _send(self, method: str, path: str, scope: Scope, **request: Any) -> requests.Response:
        """Send a request, after a login if the registry asks for one.

        Tokens expire, so a request that was refused gets another one. The content of an upload can only be sent once.
        """
        own = f"{self.scheme}://{self.host}/v2/"
        url = urljoin(own, path)
        # A registry may send uploads elsewhere, such as to an object store. The login is only for the registry.
        is_own = urlsplit(url)[:2] == urlsplit(own)[:2]
        response = self._request(method, url, scope if is_own else None, request)
        if response.status_code != HTTPStatus.UNAUTHORIZED or not is_own or isinstance(request.get("data"), _Sized):
            return response
        authorization = self._authorization(response, scope)
        if authorization == self._tokens.get(scope):
            return response
        self._tokens[scope] = authorization
        response.close()
        return self._request(method, url, scope, request)

    def _request(self, method: str, url: str, scope: Scope | None, request: Mapping[str, Any]) -> requests.Response:
        token = self._tokens.get(scope) if scope else None
        headers = {**request.get("headers", {}), **({"Authorization": token} if token else {})}
        try:
            return self._session.request(
                method, url, **{**request, "headers": headers}, timeout=(CONNECT_SECONDS, ANSWER_SECONDS)
            )
        except requests.RequestException as exc:
            raise self._unreachable(exc) from exc

    def _authorization(self, response: requests.Response, scope: Scope) -> str:
        """Return the value of the header Authorization that a registry asks for.

        Source: https://distribution.github.io/distribution/spec/auth/token/
        """
        kind, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        login = self.login or login_for(self.host)
        if kind.lower() == "basic":
            if login is None:
                raise RegistryDeniedError(f"{self.host} asks for a login.")
            return "Basic " + base64.b64encode(":".join(login).encode()).decode()
        challenge = parse_dict_header(rest)
        realm = challenge.get("realm") or ""
        if kind.lower() != "bearer" or not realm.startswith(("https://", f"{self.scheme}://")):
            raise RegistryError(f"{self.host} asks for a login of an unknown kind: {printable(kind)}.")
        query = {"service": challenge.get("service") or self.host, "scope": scope.names()}
        try:
            answer = self._session.get(
                realm, params=query, auth=login, timeout=(CONNECT_SECONDS, ANSWER_SECONDS), allow_redirects=False
            )
        except requests.RequestException as exc:
            raise self._unreachable(exc) from exc
        self._check(answer, realm)
        try:
            found = parse_json(answer.content, "the token")
        except ValueError as exc:
            raise RegistryError(f"{realm} gave no token: {exc}.") from exc
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str):
            raise RegistryError(f"{realm} gave no token.")
        return f"Bearer {token}"

    def _check(self, response: requests.Response, what: str) -> None:
        """Raise RegistryError if a registry refused a request."""
        if response.status_code < HTTPStatus.BAD_REQUEST:
            return
        said = _refusal(response)
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise RegistryDeniedError(f"{self.host} does not allow this for {what}: {said}.")
        raise RegistryError(f"{self.host} refused {what}: {said}.")

    def _unreachable(self, exc: requests.RequestException) -> RegistryError:
        if isinstance(exc, requests.exceptions.SSLError):
            remedy = (
                "If it has no TLS, write http:// in front of its name; REQUESTS_CA_BUNDLE may name its certificates."
            )
            return RegistryError(f"{self.host} has no TLS, or no certificate that is trusted here. {remedy}")
        return RegistryError(f"{self.host} does not answer: {_failure(exc)}.")


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


def _failure(exc: requests.RequestException) -> str:
    """Return why a request got no answer. The reason is in the innermost of several errors."""
    if isinstance(exc, requests.Timeout):
        limit = CONNECT_SECONDS if isinstance(exc, requests.ConnectTimeout) else ANSWER_SECONDS
        return f"nothing came within {limit} seconds"
    inner: BaseException = exc
    while not (isinstance(inner, OSError) and inner.strerror) and (inner.__cause__ or inner.__context__):
        inner = inner.__cause__ or inner.__context__ or inner
    return printable(str(getattr(inner, "strerror", None) or inner) or type(inner).__name__)


def _refusal(response: requests.Response) -> str:
    """Return why a registry refused a request, in its own words if it sent some."""
    with suppress(ValueError, KeyError, TypeError, IndexError, requests.RequestException):
        first = json.loads(response.content)["errors"][0]
        return printable(f"{first['code']}: {first['message']}")
    return f"{response.status_code} {response.reason}"
