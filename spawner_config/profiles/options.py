"""The server options that users may set, and the plan of a server that results from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError
from farandole.models.names import parse_key
from farandole.server.worker.args import WORKER_ARGS
from farandole.streams.address import check_pair, parse_source, parse_target
from tornado.web import HTTPError

from spawner_config.image_names import is_admitted
from spawner_config.profiles.limits import LimitError
from spawner_config.roles import ENDPOINT_PREFIX, is_endpoint, is_notebook, is_worker, role_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spawner_config.profiles.profiles import Profile, ProfileSet

NOTEBOOK_MODULE = "farandole.server.single_user"
WORKER_MODULE = "farandole.server.worker"
SERVING_MODULE = "farandole.serving"
COMMAND_MODULE = "farandole.serving.command"
NOTEBOOK_BODY = 256_000_000
"""The largest request body in bytes that a notebook server accepts from its user. farandole.server.senders limits those
of senders without a login. Jupyter's default is 512 MB. JupyterLab uploads files in chunks of 1 MB, but saves a
notebook with all outputs in one request."""
NOTEBOOK_ARGS = [f"--ServerApp.{limit}={NOTEBOOK_BODY}" for limit in ("max_body_size", "max_buffer_size")]
LEAN_SERVER_APP = "jupyter_server.serverapp.ServerApp"
WORKER_OPTIONS = ("role", "profile", "cluster", "ranks", "workers", "wait", "together", "backend")
BACKENDS = ("", "horovod", "torch", "none")
"""The backends of a cluster. With an empty string, the driver chooses the backend."""
NOTEBOOK_OPTIONS = ("profile", "wait")
ENDPOINT_KINDS = ("model", "command", "model_image")
"""What an endpoint runs. Each endpoint has one of these options. DockerSpawner reads an option ``image`` itself."""
STREAM_OPTIONS = ("from", "to", "credentials")
ENDPOINT_OPTIONS = ("role", "profile", "wait", "runtime", *ENDPOINT_KINDS, *STREAM_OPTIONS)
MODELS_IN_IMAGE = "/models"
"""The model store in an image that `%models publish` has made."""
RUNTIMES = ("onnx", "torch")
"""What computes the outputs of an endpoint's model. Each has an image of its own."""


class OptionsError(ValueError):
    """Raised when a server option is invalid."""


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """The plan of a server: its Python module, profile, and additional environment variables and arguments.

    ``runtime`` is one of `RUNTIMES` for an endpoint with a model, which runs in an environment of its own, or empty.
    ``image`` is the image of an endpoint whose model is in its image, or empty.
    """

    module: str
    profile: Profile
    environment: dict[str, str]
    args: list[str]
    runtime: str = ""
    image: str = ""


def plan_server(
    profile_set: ProfileSet,
    server_name: str,
    options: dict[str, Any],
    *,
    other_workers: int = 0,
    other_notebooks: int = 0,
    other_endpoints: int = 0,
    model_images: Sequence[str] | None = None,
) -> ServerPlan:
    """Return the plan of a server.

    ``other_workers``, ``other_notebooks`` and ``other_endpoints`` are the numbers of the user's other servers.
    ``model_images`` are the names of images that endpoints may run, or None if servers do not run from images. Raises
    `OptionsError`, `LookupError` or `LimitError` with a message that contains a remedy.
    """
    role = options.get("role", "notebook")
    if role != role_of(server_name):
        raise OptionsError(
            f"The server {server_name!r} cannot have the role {role!r}: a worker is named <cluster>-w<number> and has "
            f'the role "worker", an endpoint is named {ENDPOINT_PREFIX}<name> and has the role "endpoint", and any '
            "other server has no role. Let %cluster start and %serve choose the names."
        )
    if role == "worker":
        return _plan_worker(profile_set, server_name, options, other_workers)
    if role == "endpoint":
        return _plan_endpoint(profile_set, options, other_endpoints, model_images)
    return _plan_notebook(profile_set, options, other_notebooks)


def _plan_worker(profile_set: ProfileSet, server_name: str, options: dict[str, Any], others: int) -> ServerPlan:
    _refuse_unknown(options, WORKER_OPTIONS)
    cluster = server_name.rpartition("-w")[0]
    if options.get("cluster", cluster) != cluster:
        raise OptionsError(f"The worker {server_name!r} belongs by its name to the cluster {cluster!r}.")
    profile = profile_set.get(options.get("profile", profile_set.default.name))
    asked = options.get("ranks")
    ranks = profile_set.limits.check_ranks(profile.ranks if asked is None else asked)
    profile_set.limits.check_workers(others)
    _check_together(options.get("together", 1))
    own = {
        "JUPYTERHUB_SINGLEUSER_APP": LEAN_SERVER_APP,
        "FARANDOLE_CLUSTER": cluster,
        "FARANDOLE_WORKER": server_name,
        "FARANDOLE_PROFILE": profile.name,
        "FARANDOLE_RANKS": str(ranks),
        "FARANDOLE_CLUSTER_BACKEND": _backend(options.get("backend", "")),
    }
    environment = {**profile.variables(ranks), **own}
    return ServerPlan(module=WORKER_MODULE, profile=profile, environment=environment, args=list(WORKER_ARGS))


def _plan_notebook(profile_set: ProfileSet, options: dict[str, Any], others: int) -> ServerPlan:
    _refuse_unknown(options, NOTEBOOK_OPTIONS)
    profile_set.limits.check_notebooks(others)
    profile = profile_set.get(options.get("profile", profile_set.default.name))
    own = {
        "FARANDOLE_PROFILES": json.dumps([each.public() for each in profile_set.profiles]),
        "FARANDOLE_LIMITS": json.dumps(profile_set.limits.model_dump()),
    }
    return ServerPlan(
        module=NOTEBOOK_MODULE, profile=profile, environment={**profile.variables(), **own}, args=NOTEBOOK_ARGS
    )


def _plan_endpoint(
    profile_set: ProfileSet, options: dict[str, Any], others: int, model_images: Sequence[str] | None
) -> ServerPlan:
    _refuse_unknown(options, ENDPOINT_OPTIONS)
    profile_set.limits.check_endpoints(others)
    profile = profile_set.get(options.get("profile", profile_set.default.name))
    if sum(kind in options for kind in ENDPOINT_KINDS) != 1:
        raise OptionsError(f"An endpoint has exactly one of the options {', '.join(ENDPOINT_KINDS)}.")
    own = profile.variables() | {"FARANDOLE_ENDPOINT": "yes"}
    stream = _stream(options)
    if "command" in options:
        command = _command(options["command"])
        return ServerPlan(module=COMMAND_MODULE, profile=profile, environment=own, args=["--", *command])
    _refuse_gpus(profile, profile_set)
    if "model_image" in options:
        own |= {"FARANDOLE_MODELS": MODELS_IN_IMAGE}
        image = _admitted(str(options["model_image"]), model_images)
        return ServerPlan(module=SERVING_MODULE, profile=profile, environment=own, args=stream, image=image)
    runtime = options.get("runtime")
    if runtime not in RUNTIMES:
        raise OptionsError(f"There is no runtime {runtime!r}. Choose one of: {', '.join(RUNTIMES)}.")
    model = _versioned(options["model"])
    return ServerPlan(module=SERVING_MODULE, profile=profile, environment=own, args=[model, *stream], runtime=runtime)


def _stream(options: dict[str, Any]) -> list[str]:
    """Return the arguments for the stream whose records an endpoint scores. Without a stream, there are none."""
    values = {key: options[key] for key in STREAM_OPTIONS if key in options}
    if not values:
        return []
    if not {"from", "to"} <= values.keys() or not all(isinstance(value, str) for value in values.values()):
        raise OptionsError("An endpoint that scores records has the options 'from' and 'to', which are texts.")
    if "command" in options:
        raise OptionsError("A command does not score records. Leave out the options 'from' and 'to'.")
    if "model_image" in options and "credentials" in values:
        raise OptionsError("An endpoint with an image has no files of its user. Leave out the option 'credentials'.")
    try:
        check_pair(parse_source(values["from"]), parse_target(values["to"]))
    except UsageError as exc:
        raise OptionsError(str(exc)) from exc
    return [f"--{key}={value}" for key, value in values.items()]


def _admitted(image: str, admitted: Sequence[str] | None) -> str:
    """Return the image that an endpoint runs. Raises `OptionsError` if the administrator has not admitted it."""
    if admitted is None:
        raise OptionsError("The servers of this hub are processes, and run no images. Serve the model from your store.")
    if not is_admitted(image, admitted):
        known = f"It runs {', '.join(admitted)}" if admitted else "It runs none"
        raise OptionsError(
            f"This hub does not run the image {image!r} for endpoints. {known}; the administrator can add it to "
            "FARANDOLE_MODEL_IMAGES."
        )
    return image


def _refuse_gpus(profile: Profile, profile_set: ProfileSet) -> None:
    """Raise `OptionsError` if a profile has GPUs, which an endpoint with a model would reserve and not use."""
    others = ", ".join(one.name for one in profile_set.profiles if not one.gpus)
    if profile.gpus and not others:
        raise OptionsError(
            "All profiles of this hub have GPUs, and endpoints with a model compute on the CPU. Ask the administrator "
            "for a profile without GPUs."
        )
    if profile.gpus:
        raise OptionsError(
            f"The profile {profile.name!r} has GPUs, and endpoints with a model compute on the CPU. Choose another "
            f"with `--profile`: {others}. A server of yours can use GPUs: `%serve --command`."
        )


def _command(words: object) -> list[str]:
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise OptionsError("The option 'command' must be a list of words, such as ['python', 'app.py'].")
    return words


def _versioned(key: object) -> str:
    """Return the name and the version of a model. A version must be named, so that a restart serves the same one."""
    try:
        name, version = parse_key(str(key))
    except UsageError as exc:
        raise OptionsError(str(exc)) from exc
    if version is None:
        raise OptionsError(f"The option 'model' is {key!r}. It must have a version, such as {name}:3.")
    return f"{name}:{version}"


def _refuse_unknown(options: dict[str, Any], known: tuple[str, ...]) -> None:
    """Raise `OptionsError` if an option is unknown or ``wait`` is not a boolean."""
    for key in options:
        if key not in known:
            raise OptionsError(f"There is no server option {key!r} here. Known options: {', '.join(known)}.")
    if not isinstance(options.get("wait", False), bool):
        raise OptionsError(f"The option 'wait' is {options['wait']!r}. It must be true or false.")


def _backend(name: object) -> str:
    if name not in BACKENDS:
        raise OptionsError(f"There is no backend {name!r}. Choose one of: {', '.join(filter(None, BACKENDS))}.")
    return str(name)


def _check_together(number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OptionsError(f"The option 'together' is {number!r}. It must be a number of workers, at least 1.")


class OptionsHook:
    """The hub's ``apply_user_options``: plans a server and configures its spawner.

    - ``python`` is the Python interpreter of the servers, and ``serving_python`` that of endpoints with a model. Each
      server gets ``environment``, and each Jupyter server gets ``args``.
    - ``model_images`` are the names of images that endpoints may run, or None if servers do not run from images.
    - ``finish`` is called with the spawner and its profile, to set attributes that only this deployment's spawner has.
      It may raise `OptionsError`.
    - An invalid option is answered with HTTP 400 and the reason.
    """

    def __init__(
        self,
        profile_set: ProfileSet,
        *,
        python: str,
        environment: dict[str, str],
        args: list[str],
        serving_python: str = "",
        model_images: Sequence[str] | None = None,
        finish: Callable[[Any, Profile], None] | None = None,
    ) -> None:
        """Store the values that all servers of the hub get."""
        self._profile_set = profile_set
        self._python = python
        self._serving_python = serving_python or python
        self._model_images = model_images
        self._environment = environment
        self._args = args
        self._finish = finish

    def __call__(self, spawner: Any, options: dict[str, Any]) -> None:
        """Apply a user's options to ``spawner``; raises HTTPError 400."""
        try:
            plan = plan_server(
                self._profile_set,
                spawner.name,
                options,
                other_workers=count_other_workers(spawner, options),
                other_notebooks=_count_others(spawner, is_notebook),
                other_endpoints=_count_others(spawner, is_endpoint),
                model_images=self._model_images,
            )
        except (OptionsError, LookupError, LimitError) as exc:
            raise _refusal(exc) from exc
        # Assign values instead of adding to them, because the hub reuses the spawner for the next start.
        spawner.cmd = [self._serving_python if plan.runtime else self._python, "-m", plan.module]
        spawner.environment = {**self._environment, **plan.environment}
        spawner.args = plan.args if is_endpoint(spawner.name) else [*self._args, *plan.args]
        spawner.runtime, spawner.model_image = plan.runtime, plan.image
        spawner.cpu_limit = plan.profile.cpus
        spawner.mem_limit = plan.profile.memory
        spawner.gpus, spawner.gpu_class = plan.profile.gpus, plan.profile.gpu_class
        spawner.wait_for_gpus = options.get("wait", False)
        if self._finish:
            try:
                self._finish(spawner, plan.profile)
            except OptionsError as exc:
                raise _refusal(exc) from exc


def count_other_workers(spawner: Any, options: dict[str, Any]) -> int:
    """Return the number of the user's other workers that are starting, running or stopping.

    Workers of this cluster that are not started yet count too, according to the option ``workers``, which contains the
    planned size of the cluster. A cluster with too many workers is therefore refused with its first worker.
    """
    servers = spawner.user.spawners
    others = [name for name in list(servers) if is_worker(name) and name != spawner.name and servers[name].active]
    siblings = [name for name in others if name.rpartition("-w")[0] == spawner.name.rpartition("-w")[0]]
    wanted = options.get("workers")
    coming = wanted - 1 if isinstance(wanted, int) else 0
    return len(others) - len(siblings) + max(len(siblings), coming)


def _count_others(spawner: Any, has_role: Callable[[str], bool]) -> int:
    """Return the number of the user's other servers with a role that are starting, running or stopping."""
    servers = spawner.user.spawners
    return sum(has_role(name) and name != spawner.name and servers[name].active for name in list(servers))


def _refusal(exc: Exception) -> HTTPError:
    return HTTPError(400, "%s", exc, reason=_one_line(exc))


def _one_line(exc: Exception) -> str:
    # The reason phrase of an HTTP response must be Latin-1 without line breaks, but options can contain any text.
    return " ".join(str(exc).split()).encode("latin-1", "replace").decode("latin-1")
