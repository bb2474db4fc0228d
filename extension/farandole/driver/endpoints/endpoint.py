"""The public class `Endpoint`, which is a synchronous interface to the endpoints of the user."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from farandole.driver.endpoints.client import ENDPOINT_PREFIX, EndpointClient, EndpointStatus, invalid, known
from farandole.driver.loop import LoopThread
from farandole.driver.workers.source import WORKER_NAME
from farandole.driver.workers.starts import SERVER_START_SECONDS
from farandole.driver.workers.worker import Progress
from farandole.exceptions import EndpointError, EndpointExistsError, UsageError
from farandole.models.model import NUMPY_TYPES, ONNX_FILE, ModelInfo
from farandole.models.names import NAME
from farandole.models.records import check_records
from farandole.models.store import ModelStore, verify
from farandole.models.trust import check_writers
from farandole.reading import printable
from farandole.registry.reference import is_reference, parse_reference
from farandole.streams.address import LABEL, check_pair, parse_source, parse_target

T = TypeVar("T")


class Outputs(dict[str, Any]):
    """The outputs of a model by name, as NumPy arrays.

    Attributes:
        version: the version that computed them.
    """

    def __init__(self, arrays: Mapping[str, Any], *, version: int) -> None:
        super().__init__(arrays)
        self.version = version


@dataclass(frozen=True, kw_only=True)
class _Served:
    """The model that a running endpoint serves. Two of them are equal if the same server expects the same inputs.

    Attributes:
        endpoint: the name of the endpoint.
        server: the hub's model of its server.
        started: when its server was started, as the hub says.
        model: the name of the model, without its group.
        datatypes: the datatypes of its inputs, by name.
    """

    endpoint: str
    server: dict[str, Any] = field(compare=False)
    started: str | None
    model: str
    datatypes: dict[str, str]

    @classmethod
    async def find(cls, client: EndpointClient, name: str) -> _Served:
        """Ask the hub for the server, and the endpoint for its inputs. Raises EndpointError if it serves no model."""
        server = await client.server(name)
        status = known(name, server)
        if status.command:
            raise EndpointError(f"the endpoint {name} runs a command; send requests to {status.url}")
        if status.image:
            # Only the endpoint knows which model is in its image.
            status = await client.status_of(name, server)
        if not status.model:
            raise EndpointError(f"the endpoint {name} does not say which model it serves; see `%serve list`")
        model = status.model.rpartition("/")[2]
        datatypes = _datatypes(name, await client.metadata(name, model, server))
        return cls(endpoint=name, server=server, started=server.get("started"), model=model, datatypes=datatypes)

    async def infer(self, client: EndpointClient, inputs: Mapping[str, Any]) -> Outputs:
        """Call the model. Raises EndpointError if the endpoint refuses this."""
        # The endpoint refuses inputs that it does not know, and names those that it expects.
        tensors = [_tensor(name, self.datatypes.get(name, "FP32"), value) for name, value in inputs.items()]
        return _outputs(self.endpoint, await client.infer(self.endpoint, self.model, {"inputs": tensors}, self.server))


class Endpoint:
    """A server of the user that answers requests over HTTP: a model of the store, or a command of the user.

    An endpoint continues when the notebook that started it ends. `Endpoint.stop` ends it.
    """

    def __init__(self, name: str, *, hub_url: str | None = None, token: str | None = None) -> None:
        """Make an object for the endpoint with this name, which need not be running."""
        match = NAME.fullmatch(name)
        if match is None or match["group"]:
            raise UsageError(
                f"{name!r} cannot be an endpoint's name; use 1 to 24 lower-case letters, digits and inner hyphens"
            )
        if WORKER_NAME.match(f"{ENDPOINT_PREFIX}{name}"):
            raise UsageError(
                f"{name!r} cannot be an endpoint's name, because names of workers end with -w and a number; choose "
                "another name with `--name`"
            )
        self.name = name
        self._where = (hub_url, token)
        self._served: _Served | None = None
        """What the latest call has used. Further calls need not ask for it."""

    @classmethod
    def start(
        cls,
        model: str = "",
        *,
        command: Sequence[str] = (),
        name: str | None = None,
        profile: str | None = None,
        wait: bool = False,
        timeout: float = SERVER_START_SECONDS,
        source: str = "",
        target: str = "",
        credentials: str = "",
        store: ModelStore | None = None,
        progress: Progress = print,
        **where: Any,
    ) -> Endpoint:
        """Start an endpoint that serves a model, or that runs a command.

        Args:
            model: the model and its version, such as ``iris:3``. Without a version, the latest one. Or the image that
                has the model, such as ``registry.example.org/lab/iris:3``.
            command: the words of the command, in which ``{port}`` stands for the port on which it has to listen.
            name: the name of the endpoint. The default is the name of the model.
            profile: one of the hub's profiles, or None for the default.
            wait: whether to wait in a queue if no GPU is available.
            timeout: how many seconds the start may take.
            source: the stream whose records the endpoint also scores, such as ``calls``, a subject of the hub's NATS
                server, or ``redis://HOST:PORT/calls``.
            target: the stream of the scored records, such as ``decisions.{label}``.
            credentials: a file below the home with the login to the broker of the streams. The hub's needs none.
            where: ``hub_url`` and ``token`` for another hub than the notebook's.

        Raises:
            UsageError, EndpointExistsError: an argument is wrong, or there is an endpoint with this name.
            ModelError: the model does not exist, is damaged, or cannot score records.
            EndpointError: the model was saved without an example.
            WorkerStartError, HubError: the start failed, and nothing is left of it.
        """
        if bool(model) == bool(command):
            raise UsageError("an endpoint serves a model, or runs a command: give one of them")
        stream = stream_options(source, target, credentials)
        if stream and command:
            raise UsageError("a command does not score records of a stream; leave out `--from` and `--to`")
        default, kind = ("app", {"command": [*command]}) if command else _model_options(model, store, target)
        endpoint = cls(name or default, **where)
        options = {"wait": wait, **({"profile": profile} if profile else {}), **stream, **kind}

        async def start(client: EndpointClient) -> None:
            if endpoint.name in await client.servers():
                raise EndpointExistsError(
                    f"there is an endpoint {endpoint.name!r}; stop it with `%serve stop {endpoint.name}`, or choose "
                    "another `--name`"
                )
            await client.start(endpoint.name, options, progress=progress, timeout=timeout)

        endpoint._call(start)
        return endpoint

    @classmethod
    def all(cls, **where: Any) -> list[EndpointStatus]:
        """Return what is known of the user's endpoints."""
        return cls("any", **where)._call(lambda client: client.statuses())

    def status(self) -> EndpointStatus:
        """Return what is known of this endpoint.

        Raises:
            EndpointNotFoundError: it is not running.
            EndpointError: its answer is not valid.
        """
        return self._call(lambda client: client.status(self.name))

    @property
    def url(self) -> str:
        """The address for browsers and programs elsewhere."""
        return self.status().url

    def switch(self, model: str, *, store: ModelStore | None = None) -> None:
        """Serve another version of the model, such as ``iris:4``. Requests are answered meanwhile by the earlier one.

        Raises:
            ModelError, EndpointError: the version cannot be served. The earlier one stays.
        """
        info = servable(store or ModelStore(), model)
        self._call(lambda client: client.switch(self.name, str(info)))

    def infer(self, **inputs: Any) -> Outputs:
        """Call the model, and return its outputs.

        Args:
            inputs: a NumPy array, or what `numpy.asarray` accepts, for each input. The first dimension is the batch.

        Returns:
            Outputs: a dict of NumPy arrays by name. Its attribute ``version`` is the version that computed them.

        Raises:
            EndpointError: the endpoint refused the inputs, or does not answer.
        """

        return self._call(lambda client: self._infer(client, inputs))

    async def _infer(self, client: EndpointClient, inputs: Mapping[str, Any]) -> Outputs:
        served = self._served or await _Served.find(client, self.name)
        while True:
            try:
                outputs = await served.infer(client, inputs)
            except EndpointError:
                self._served = None
                # The endpoint may serve a version with other inputs by now, or have been started again.
                earlier, served = served, await _Served.find(client, self.name)
                if served == earlier:
                    raise
            else:
                self._served = served
                return outputs

    def token(self, *, days: float = 30) -> str:
        """Return a new token with which programs elsewhere can call this endpoint, and nothing else.

        The hub's Token page lists and revokes it. A revoked token stops working within 10 seconds.
        """
        return self._call(lambda client: client.token(self.name, days))

    @property
    def shares(self) -> list[str]:
        """The users of the hub with whom this endpoint is shared."""
        return self._call(lambda client: client.shares(self.name))

    def share(self, user: str) -> None:
        """Let another user of the hub call this endpoint, with a token of that user."""
        self._call(lambda client: client.share(self.name, user, allowed=True))

    def unshare(self, user: str) -> None:
        """Let another user no longer call this endpoint."""
        self._call(lambda client: client.share(self.name, user, allowed=False))

    def stop(self) -> None:
        """Stop this endpoint, and wait for its end."""
        self._call(lambda client: client.stop(self.name))

    def __repr__(self) -> str:
        return f"<Endpoint {self.name}>"

    def _call(self, work: Callable[[EndpointClient], Coroutine[Any, Any, T]]) -> T:
        async def connected() -> T:
            client = await EndpointClient.connect(*self._where)
            try:
                return await work(client)
            finally:
                await client.close()

        loop = LoopThread()
        try:
            return loop.call(connected())
        finally:
            loop.close()


def running_models(**where: Any) -> dict[str, str]:
    """Return the models of the user's endpoints, by the name of the endpoint. The model of a command is empty.

    Only the hub is asked, and no endpoint.
    """
    servers = Endpoint("any", **where)._call(lambda client: client.servers())
    return {name: known(name, server).model for name, server in sorted(servers.items())}


def _model_options(model: str, store: ModelStore | None, target: str) -> tuple[str, dict[str, Any]]:
    """Return the default name of an endpoint with a model, and the server options for the model or its image.

    ``target`` is the stream of scored records, or an empty string. Raises ModelError or EndpointError if the model
    cannot be served, or cannot score records.
    """
    if is_reference(model):
        image = parse_reference(model)
        return image.repository.rpartition("/")[2], {"model_image": str(image)}
    info = servable(store or ModelStore(), model)
    if target:
        check_records(info, labelled=LABEL in target)
    return info.name.model, {"model": str(info), "runtime": "onnx" if ONNX_FILE in info.files else "torch"}


def stream_options(source: str, target: str, credentials: str) -> dict[str, str]:
    """Return the server options for a stream. Without a stream, there are none. Raises UsageError if one is invalid."""
    if not source and not target and not credentials:
        return {}
    if not source or not target:
        raise UsageError("a stream needs both `--from` and `--to`, such as `--from calls --to decisions`")
    check_pair(parse_source(source), parse_target(target))
    if not credentials:
        return {"from": source, "to": target}
    path = Path(credentials).expanduser().resolve()
    if not path.is_relative_to(Path.home().resolve()) or not path.is_file():
        raise UsageError(f"`--credentials {credentials}` is not a file in your home, where the endpoint can read it")
    return {"from": source, "to": target, "credentials": str(path.relative_to(Path.home().resolve()))}


def servable(store: ModelStore, key: str) -> ModelInfo:
    """Return a version that can be served. Raises ModelError or EndpointError before a server is started for it."""
    info = store.find(key)
    if not info.inputs:
        raise EndpointError(f"{info} was saved without an example, so it cannot be served; save it with `example=x`")
    if ONNX_FILE not in info.files:
        check_writers(info)
    verify(info)
    return info


def _datatypes(endpoint: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the datatypes of a model's inputs by name. Raises EndpointError if the metadata are not valid."""
    try:
        return {one["name"]: one["datatype"] for one in metadata["inputs"]}
    except (KeyError, TypeError) as exc:
        raise invalid(endpoint, f"description of its inputs: {printable(repr(exc))}") from exc


def _tensor(name: str, datatype: str, value: Any) -> dict[str, Any]:
    import numpy as np

    array = np.asarray(value)
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()}


def _outputs(endpoint: str, answer: Mapping[str, Any]) -> Outputs:
    """Return the outputs in an answer. Raises EndpointError if it is not valid."""
    import numpy as np

    try:
        arrays = {
            one["name"]: np.array(one["data"], NUMPY_TYPES[one["datatype"]]).reshape(one["shape"])
            for one in answer["outputs"]
        }
        return Outputs(arrays, version=int(answer["model_version"]))
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise invalid(endpoint, f"answer: {printable(repr(exc))}") from exc
