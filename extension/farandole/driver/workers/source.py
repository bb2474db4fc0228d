"""Starts workers on a JupyterHub, as named servers of the user."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import aiohttp

from farandole.cli import credentials
from farandole.cli.credentials import Login
from farandole.driver.loop import all_or_first_error
from farandole.driver.workers.client import HubClient
from farandole.driver.workers.starts import start_server
from farandole.driver.workers.worker import Progress, Worker, WorkerOptions, WorkerSource
from farandole.exceptions import (
    ClusterExistsError,
    FarandoleError,
    HubError,
    NoClusterError,
    PermissionDeniedError,
    UsageError,
)

WORKER_NAME = re.compile(r"^(?P<cluster>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)-w(?P<index>[0-9]+)$")
ADDRESS_VARIABLES = ("FARANDOLE_HUB_URL", "JUPYTERHUB_HOST", "JUPYTERHUB_PUBLIC_HUB_URL")


class HubWorkers(WorkerSource):
    """Workers on a JupyterHub, which are named servers ``<cluster>-w<i>`` of the token's user."""

    def __init__(self, client: HubClient) -> None:
        self._client = client
        self.hub = client.url
        self.outside = not client.internal
        self._tokens: dict[str, tuple[str, str]] = {}
        """The start time and the token of each worker, indexed by name."""

    @classmethod
    def from_environment(cls, url: str | None, token: str | None, session: aiohttp.ClientSession) -> HubWorkers:
        """Use the given address and token, or those of this process's notebook server, or those of a login.

        Raises:
            NoClusterError: there is no address or no token for it.
        """
        own = os.environ.get("FARANDOLE_HUB_URL", "")
        is_own = own != "" and (not url or credentials.address_of(url) in _own_addresses())
        # This process may be unable to reach the hub's address for browsers.
        url = own if is_own else url or ""
        # The variables belong to this process's hub, so they must not be used for another hub.
        public = os.environ.get("JUPYTERHUB_HOST", "") if is_own else ""
        # A laptop's user may set FARANDOLE_HUB_URL too. Only servers of the hub have a JUPYTERHUB_SERVICE_PREFIX.
        internal = is_own and "JUPYTERHUB_SERVICE_PREFIX" in os.environ
        token = token or (os.environ.get("JUPYTERHUB_API_TOKEN") if is_own else None)
        if not url or not token:
            login = _login(url)
            url, token = login.url, token or login.token
        return cls(HubClient(url=url, token=token, session=session, public=public, internal=internal))

    @property
    def client(self) -> HubClient:
        """The client for the hub's API."""
        return self._client

    async def start(
        self, names: Sequence[str], options: WorkerOptions, progress: Progress, timeout: float
    ) -> list[Worker]:
        """Start named servers, either all or none of them."""
        servers = await self._client.servers()
        if taken := sorted(set(names) & set(servers)):
            raise ClusterExistsError(
                f"cluster {options.cluster!r} exists already (worker {taken[0]}). Use "
                f"`%cluster attach {options.cluster}`, or choose another `--name`."
            )
        try:
            return await all_or_first_error([self._start_one(name, options, progress, timeout) for name in names])
        except BaseException:
            await self._clean_up(names, progress)
            raise

    async def find(self, cluster: str) -> list[Worker]:
        """Return the cluster's ready workers, ordered by index."""
        servers = await self._client.servers()
        ready = [match for match in _matches(servers, cluster) if servers[match[0]].get("ready")]
        ready.sort(key=lambda match: int(match["index"]))
        return await asyncio.gather(*(self.worker(match[0], servers[match[0]]["url"]) for match in ready))

    async def clusters(self) -> dict[str, int]:
        """Return the user's clusters and how many workers each has."""
        counts: dict[str, int] = {}
        for match in _matches(await self._client.servers()):
            counts[match["cluster"]] = counts.get(match["cluster"], 0) + 1
        return counts

    async def names(self, cluster: str) -> list[str]:
        """Return the names of the cluster's workers, including workers that are starting or do not respond."""
        return sorted(match[0] for match in _matches(await self._client.servers(), cluster))

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return the hub's GPUs and their holders, by class."""
        return await self._client.gpus()

    async def stop(self, names: Sequence[str], /) -> None:
        """Stop and remove these servers. The first error is raised only after all servers have been tried."""
        outcomes = await asyncio.gather(*(self._client.stop_server(name) for name in names), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def close(self) -> None:
        """Close the connections. The workers keep running, and a driver can attach to them later."""
        await self._client.session.close()

    async def _clean_up(self, names: Sequence[str], progress: Progress) -> None:
        """Stop the servers of a failed start. Errors are shown instead of raised, to keep the original error."""
        try:
            await self.stop(names)
        except FarandoleError as exc:
            progress(f"workers {', '.join(names)} may still exist: {exc}")

    async def _start_one(self, name: str, options: WorkerOptions, progress: Progress, timeout: float) -> Worker:
        url = await start_server(
            self._client, name, options.user_options(), what=f"worker {name}", progress=progress, timeout=timeout
        )
        return await self.worker(name, url)

    async def worker(self, name: str, url: str, *, started: str = "") -> Worker:
        """Return a worker, given its name and its URL or its path on the hub.

        Requests to the worker use a token that is valid only for that worker, because programs on the worker can read
        the requests. The previous token is used again if ``started``, the worker's start time, has not changed since
        the last call.
        """
        if not started or self._tokens.get(name, ("", ""))[0] != started:
            self._tokens[name] = started, await self._client.worker_token(name)
        address = self._client.address.server(url)
        return Worker(
            name=name,
            url=address.url,
            host=address.host,
            token=self._tokens[name][1],
            session=self._client.session,
            presence=partial(self._presence, name),
        )

    async def _presence(self, name: str) -> bool | None:
        """Return whether the hub lists a worker, or None if the hub does not answer.

        Raises PermissionDeniedError if the hub refuses the token, which it will do again.
        """
        try:
            return name in await self._client.servers()
        except PermissionDeniedError:
            raise
        except HubError:
            return None


def _matches(servers: Iterable[str], cluster: str | None = None) -> list[re.Match[str]]:
    """Match server names against `WORKER_NAME`, and return the matches of one cluster, or of all clusters."""
    matches = (WORKER_NAME.match(name) for name in servers)
    return [match for match in matches if match and cluster in {None, match["cluster"]}]


def _own_addresses() -> set[str]:
    """Return the addresses of this process's hub, as its servers know them: its proxy's, and those for browsers."""
    known = (os.environ.get(name) for name in ADDRESS_VARIABLES)
    return {credentials.address_of(address) for address in known if address}


def _login(url: str) -> Login:
    """Return the login for a hub or, if ``url`` is empty, for the only hub. Raises NoClusterError if there is none."""
    try:
        login = credentials.login_for(url or None)
    except UsageError as exc:
        raise NoClusterError(str(exc)) from exc
    if login is None and url:
        raise NoClusterError(f"there is no token for the hub {url}; run `farandole login {url}`, or give `token=`")
    if login is None:
        raise NoClusterError(
            "there is no JupyterHub here: this kernel was not started by one. Use `%cluster start --local` for ranks "
            "on this machine, or `farandole login URL` and `%cluster start --hub URL` for workers on a hub."
        )
    return login
