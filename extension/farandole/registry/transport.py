"""Sends requests to a registry, and reads and checks its answers, which may contain anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from time import sleep
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from farandole.exceptions import RegistryDeniedError, RegistryError
from farandole.reading import parse_json, printable

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
CHUNK_BYTES = 2**16
"""Pieces of an upload are small, because each must be sent within `CONNECT_SECONDS` on slow networks, too."""
READS = ("GET", "HEAD")
FAILURES = (
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""The statuses after which a read is retried. A registry may answer 500 to a request that reads what another client
writes at the same time."""
PAUSES = (0.1, 0.3, 0.9)
"""The seconds before further attempts."""
MOST_REDIRECTS = 5
REFUSAL_BYTES = 2**16
REFUSAL_CHARACTERS = 500
"""How much of a refusal is read, and how much of it is shown."""
PORTS = {"http": 80, "https": 443}


class _Session(requests.Session):
    """A session that sends each request to one host only, with no other login than the request has."""

    def __init__(self) -> None:
        super().__init__()
        # Otherwise requests replaces the header Authorization by a login from ~/.netrc.
        self.auth = lambda request: request

    def get_redirect_target(self, _resp: requests.Response) -> str | None:
        """Return None, so that no redirect is followed. Before it follows one, requests reads all of the answer."""
        return None


@dataclass(frozen=True, kw_only=True)
class Transport:
    """Sends requests to one registry.

    - Only requests that read follow redirects. A registry may send readers elsewhere, such as to an object store.
    - A redirect to another host takes no login along.
    - A registry with TLS cannot send requests to an address without TLS.
    - Of an answer, only as much is read as its reader wants.

    Attributes:
        host: the registry, with its port if it has one.
        scheme: ``https`` or ``http``.
    """

    host: str
    scheme: str
    _session: requests.Session = field(default_factory=_Session, repr=False)

    def send(self, method: str, url: str, authorization: str, **request: Any) -> requests.Response:
        """Send a request with this value of the header Authorization, if it is not empty, and follow redirects."""
        for _ in range(MOST_REDIRECTS + 1):
            login = {"Authorization": authorization} if authorization and self.is_own(url) else {}
            response = self._repeated(method, url, {**request, "headers": {**request.get("headers", {}), **login}})
            if method not in READS or not response.is_redirect:
                return response
            url = self.location(response)
            response.close()
        raise RegistryError(f"{self.host} redirects more than {MOST_REDIRECTS} times; is it a registry?")

    def send_once(self, method: str, url: str, **request: Any) -> requests.Response:
        """Send a request, and follow no redirect."""
        try:
            response = self._session.request(
                method, url, **request, stream=True, timeout=(CONNECT_SECONDS, ANSWER_SECONDS)
            )
        # requests passes on the error of a host whose name is too long.
        except (requests.RequestException, HTTPError) as exc:
            raise self._unreachable(exc) from exc
        if response.raw.length_remaining == 0:
            # Only the end of an answer returns the connection, which further requests use again.
            response.raw.read()
        return response

    def is_own(self, url: str) -> bool:
        """Return whether an address is one of the registry itself, and not of another host, port or scheme."""
        return _origin(url) == _origin(f"{self.scheme}://{self.host}/")

    def location(self, response: requests.Response) -> str:
        """Return the address to which an answer points.

        Raises RegistryError if there is none, if it is not valid, or if it has no TLS although the registry has.
        """
        location = response.headers.get("Location")
        if not location:
            raise RegistryError(f"{self.host} did not say where to upload to; is it a registry?")
        try:
            url = urljoin(response.url, location)
            scheme, *_ = _origin(url)
        except ValueError as exc:
            raise RegistryError(f"{self.host} points to {shown(location)}, which is not an address.") from exc
        if self.scheme == "https" and scheme != "https":
            raise RegistryError(
                f"{self.host} points to {shown(url)}, which has no TLS. The administrator of this registry must set "
                "its address in its configuration (`http.host`)."
            )
        return url

    def read(self, response: requests.Response, most: int) -> Iterator[bytes]:
        """Return the content of an answer in pieces. Raises RegistryError if it has more than ``most`` bytes."""
        count = 0
        try:
            for piece in response.iter_content(CHUNK_BYTES):
                count += len(piece)
                if count > most:
                    raise RegistryError(f"{self.host} answered with more than {most} bytes.")
                yield piece
        except requests.RequestException as exc:
            raise self._unreachable(exc) from exc

    def check(self, response: requests.Response, what: str) -> None:
        """Raise RegistryError if a registry refused a request."""
        if response.status_code < HTTPStatus.MULTIPLE_CHOICES:
            return
        said = self._refusal(response)
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise RegistryDeniedError(f"{self.host} does not allow this for {what}: {said}.")
        raise RegistryError(f"{self.host} refused {what}: {said}.")

    def _repeated(self, method: str, url: str, request: Mapping[str, Any]) -> requests.Response:
        for pause in PAUSES if method in READS else ():
            response = self.send_once(method, url, **request)
            if response.status_code not in FAILURES:
                return response
            response.close()
            sleep(pause)
        return self.send_once(method, url, **request)

    def _refusal(self, response: requests.Response) -> str:
        """Return why a registry refused a request, in its own words if it sent some."""
        with suppress(RegistryError, ValueError, KeyError, TypeError, IndexError):
            content = b"".join(self.read(response, REFUSAL_BYTES))
            first = parse_json(content, "the refusal")["errors"][0]
            return shown(f"{first['code']}: {first['message']}")
        elsewhere = f" to {response.headers['Location']}" if response.is_redirect else ""
        return shown(f"{response.status_code} {response.reason}{elsewhere}")

    def _unreachable(self, exc: Exception) -> RegistryError:
        if isinstance(exc, requests.exceptions.SSLError):
            remedy = (
                "If it has no TLS, write http:// in front of its name; REQUESTS_CA_BUNDLE may name its certificates."
            )
            return RegistryError(f"{self.host} has no TLS, or no certificate that is trusted here. {remedy}")
        return RegistryError(f"{self.host} does not answer: {_failure(exc)}.")


def shown(text: str) -> str:
    """Return what errors show of a text from a registry: not all of a long one, and only printable characters."""
    return printable(text if len(text) <= REFUSAL_CHARACTERS else f"{text[:REFUSAL_CHARACTERS]}...")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return the scheme, the host and the port of an address. Raises ValueError if it is not valid."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)


def _failure(exc: Exception) -> str:
    """Return why a request got no answer. The reason is in the innermost of several errors."""
    if isinstance(exc, requests.Timeout):
        limit = CONNECT_SECONDS if isinstance(exc, requests.ConnectTimeout) else ANSWER_SECONDS
        return f"nothing came within {limit} seconds"
    inner: BaseException = exc
    while not (isinstance(inner, OSError) and inner.strerror) and (inner.__cause__ or inner.__context__):
        inner = inner.__cause__ or inner.__context__ or inner
    return shown(str(getattr(inner, "strerror", None) or inner) or type(inner).__name__)
