"""The magics ``%models`` and ``%serve``. Each one parses its arguments, calls the store or `Endpoint`, and shows it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from farandole.driver.endpoints.endpoint import Endpoint, running_models, servable
from farandole.driver.workers.starts import SERVER_START_SECONDS
from farandole.exceptions import EndpointNotFoundError, UsageError
from farandole.models.names import parse_key
from farandole.models.store import ModelStore
from farandole.notebook.arguments import parse_line, perform
from farandole.notebook.serving.manifest import inference_service
from farandole.notebook.serving.tables import Table, comparison, endpoints_table, models_table
from farandole.registry.publish import publish, publish_file, serving_image
from farandole.registry.reference import is_reference, parse_reference
from farandole.sizes import size_text
from farandole.streams.address import LABEL

DEFAULT_ACTION = "list"
MODEL_ACTIONS = (DEFAULT_ACTION, "compare", "copy", "publish", "remove")
ENDPOINT_ACTIONS = (DEFAULT_ACTION, "stop", "token", "share", "unshare")
START_OPTIONS = {
    "profile": "--profile",
    "wait": "--wait",
    "timeout": "--timeout",
    "source": "--from",
    "target": "--to",
    "credentials": "--credentials",
}
"""The options that only matter when an endpoint starts, as users write them. They are None if they are not given."""


@magics_class
class ServingMagics(Magics):
    """The magics ``%models`` and ``%serve``."""

    @magic_arguments()
    @argument("action", nargs="?", default=DEFAULT_ACTION, help="list (the default), compare, copy, publish or remove")
    @argument("models", nargs="*", help="models, such as iris:3")
    @argument("--to", metavar="IMAGE", help="the image to publish, such as registry.example.org/lab/iris:3")
    @argument("--file", metavar="FILE", help="write the image to this file, for `docker load`")
    @argument("--base", metavar="IMAGE", help="the serving image in a registry (default: the hub's)")
    @argument("--user", metavar="NAME", help="your name in the registry, whose password is then asked for")
    @argument("--help", "-h", action="store_true", help="explain the action, as `%%models compare?` does")
    @line_magic
    def models(self, line: str) -> Any:
        """List, compare, copy and remove the models that `fd.save_model` has saved."""
        options = parse_line(self.models, line)
        actions: dict[str, Callable[[argparse.Namespace], Any]] = {
            name: getattr(self, f"_models_{name}") for name in MODEL_ACTIONS
        }
        return perform("%models", options, actions, self.models.parser)

    @magic_arguments()
    @argument(
        "action",
        nargs="?",
        default=DEFAULT_ACTION,
        help="a model, such as iris:3, or list, stop, token, share or unshare",
    )
    @argument("value", nargs="?", help="the endpoint, or the user to share with")
    @argument("--command", metavar="COMMAND", help="run this command instead; {port} stands for the port to listen on")
    @argument("--name", "-n", help="the name of the endpoint or InferenceService (default: the model's)")
    @argument("--profile", "-p", help="a profile of the hub's spawn page")
    @argument("--timeout", type=float, help="seconds until the endpoint must be ready")
    @argument("--wait", action="store_true", default=None, help="wait in the queue while no GPU is free")
    @argument("--from", dest="source", metavar="STREAM", help="also score the records of this stream, such as calls")
    @argument("--to", dest="target", metavar="STREAM", help="the stream of scored records, such as decisions.{label}")
    @argument("--credentials", metavar="FILE", help="a file with the login to another broker than the hub's")
    @argument("--days", type=float, default=30, help="days after which a token expires (default: 30)")
    @argument("--kserve", action="store_true", help="print the manifest for a cluster with KServe, and start nothing")
    @argument("--help", "-h", action="store_true", help="explain the action, as `%%serve token?` does")
    @no_var_expand
    @line_magic
    def serve(self, line: str) -> Any:
        """Serve a model, or run a command, at an address that others can call. `%serve iris:4` switches the version."""
        # In a command, {port} is not a variable of the notebook.
        if self.shell is not None and "--command" not in line:
            # No frame is that deep, so only the notebook's variables are replaced, and not those of this method.
            line = self.shell.var_expand(line.replace(LABEL, f"{{{LABEL}}}"), depth=sys.getrecursionlimit())
            # Without variables in the line, IPython leaves the doubled braces.
            line = line.replace(f"{{{LABEL}}}", LABEL)
        options = parse_line(self.serve, line)
        if options.command is not None:
            return self._serve_command(options)
        actions: dict[str, Callable[[argparse.Namespace], Any]] = {
            name: getattr(self, f"_serve_{name}") for name in ENDPOINT_ACTIONS
        }
        actions.setdefault(options.action, self._serve_model)
        return perform("%serve", options, actions, self.serve.parser)

    def _models_list(self, options: argparse.Namespace) -> Table:
        """List all versions of all models, newest first, or those of some models with `%models list NAME`."""
        store = ModelStore()
        if not options.models:
            return models_table(store.list())
        return models_table([info for name in options.models for info in store.versions(name)])

    def _models_compare(self, options: argparse.Namespace) -> Table:
        """Show how versions differ, with `%models compare iris:2 iris:3`. A name alone stands for all its versions."""
        store = ModelStore()
        found = [info for key in options.models for info in ([store.find(key)] if ":" in key else store.versions(key))]
        if not found:
            raise UsageError("`%models compare` needs versions, such as `%models compare iris:2 iris:3`")
        return comparison(found)

    def _models_copy(self, options: argparse.Namespace) -> None:
        """Copy a version from a group's folder to your own store, with `%models copy vision/iris:3`.

        A server of yours may then run its code, so copy only what you trust.
        """
        for key in _some(options, "copy"):
            print(f"{key} is now {ModelStore().copy(key)}")

    def _models_publish(self, options: argparse.Namespace) -> None:
        """Put a version into a registry as an image, with `%models publish iris:3 --to registry.example.org/lab/iris`.

        Options: --to, --file, --base, --user
        """
        [key] = _some(options, "publish")[:1]
        if len(options.models) > 1 or bool(options.to) == bool(options.file):
            raise UsageError("`%models publish` needs one version, and either `--to IMAGE` or `--file FILE`")
        target = parse_reference(options.to) if options.to else None
        info = servable(ModelStore(), key)
        base = parse_reference(options.base) if options.base else serving_image(info)
        asks = f"Password of {options.user} at {(target or base).host}: "
        login = (options.user, getpass(asks)) if options.user else None
        if target is None:
            path = Path(options.file).expanduser()
            size = publish_file(info, path, base, login=login)
            load = f"docker load --input {shlex.quote(path.name)}"
            print(f"{info} is in {path} ({size_text(size)}); `{load}` loads it")
            return
        found = publish(info, target, base, login=login)
        sent = f"{size_text(found.sent)} were sent" if found.sent else "it was there already"
        shared = f", and {size_text(found.base_sent)} of the serving image" if found.base_sent else ""
        print(f"{info} is published as {found.reference} ({sent}{shared})")

    def _models_remove(self, options: argparse.Namespace) -> None:
        """Remove versions, with `%models remove iris:2`. A version that is being served stays."""
        for key in _some(options, "remove"):
            ModelStore().remove(key)
            print(f"{key} is removed")

    def _serve_command(self, options: argparse.Namespace) -> Any:
        others = [options.action, options.value, "--kserve" if options.kserve else None]
        given = [word for word in others if word not in {None, DEFAULT_ACTION}]
        if given:
            raise UsageError(f"`%serve --command` takes no model and no action; leave out {' '.join(given)}")
        return self._start(options, "")

    def _serve_model(self, options: argparse.Namespace) -> Any:
        """Serve a model with `%serve iris:3`. If its endpoint is running, this switches the version.

        `%serve registry.example.org/lab/iris:3` serves the model of an image.

        With `--from` and `--to`, it also scores the records of a stream.

        Options: --name, --profile, --wait, --timeout, --kserve, --from, --to, --credentials
        """
        key = options.action if options.value is None else f"{options.action} {options.value}"
        if is_reference(key):
            if options.kserve:
                raise UsageError("`--kserve` is for models of your store")
            return self._start(options, key)
        name = options.name or parse_key(key)[0].model
        given = " ".join(word for option, word in START_OPTIONS.items() if getattr(options, option) is not None)
        if options.kserve:
            if given:
                raise UsageError(f"`%serve --kserve` starts nothing; leave out {given}")
            print(inference_service(servable(ModelStore(), key), name))
            return None
        if not running_models().get(name):
            return self._start(options, key)
        if given:
            raise UsageError(
                f"there is an endpoint {name!r}, and switching its version does not change its server; leave out "
                f"{given}, or stop it first with `%serve stop {name}`"
            )
        endpoint = Endpoint(name)
        endpoint.switch(key)
        return endpoints_table([endpoint.status()])

    def _start(self, options: argparse.Namespace, model: str) -> Any:
        endpoint = Endpoint.start(
            model,
            command=_words(options.command or ""),
            name=options.name,
            profile=options.profile,
            wait=bool(options.wait),
            timeout=SERVER_START_SECONDS if options.timeout is None else options.timeout,
            source=options.source or "",
            target=options.target or "",
            credentials=options.credentials or "",
        )
        return endpoints_table([endpoint.status()])

    def _serve_list(self, _options: argparse.Namespace) -> Table:
        """List your endpoints, with the requests of the last minute."""
        return endpoints_table(Endpoint.all())

    def _serve_stop(self, options: argparse.Namespace) -> None:
        """Stop an endpoint with `%serve stop NAME`. Its model stays in the store.

        Options: --name
        """
        endpoint = _endpoint(options.name or options.value)
        endpoint.stop()
        print(f"endpoint {endpoint.name!r} is stopped")

    def _serve_token(self, options: argparse.Namespace) -> None:
        """Print a new token that can only call an endpoint, with `%serve token NAME`. The hub's Token page revokes it.

        Options: --name, --days
        """
        endpoint = _endpoint(options.name or options.value)
        print(endpoint.token(days=options.days))

    def _serve_share(self, options: argparse.Namespace) -> None:
        """Let another user of the hub call an endpoint, with `%serve share USER`.

        Options: --name
        """
        endpoint = _endpoint(options.name)
        if options.value is not None:
            endpoint.share(options.value)
        print(f"endpoint {endpoint.name!r} is shared with: {', '.join(endpoint.shares) or 'nobody'}")

    def _serve_unshare(self, options: argparse.Namespace) -> None:
        """Let another user no longer call an endpoint, with `%serve unshare USER`.

        Options: --name
        """
        if options.value is None:
            raise UsageError("`%serve unshare` needs a user, such as `%serve unshare grace`")
        endpoint = _endpoint(options.name)
        endpoint.unshare(options.value)
        print(f"endpoint {endpoint.name!r} is shared with: {', '.join(endpoint.shares) or 'nobody'}")


def _words(command: str) -> list[str]:
    """Split a command into words, as a shell does. Raises UsageError if a quote is missing."""
    try:
        return shlex.split(command)
    except ValueError as exc:
        raise UsageError(f"the quotes in the command {command!r} do not match; close them, or leave them out") from exc


def _some(options: argparse.Namespace, action: str) -> list[str]:
    """Return the models to which an action applies. Raises UsageError if there are none."""
    if not options.models:
        raise UsageError(f"`%models {action}` needs a version, such as `%models {action} iris:2`")
    return list(options.models)


def _endpoint(name: str | None) -> Endpoint:
    """Return the endpoint with a name, or the only one."""
    if name is not None:
        return Endpoint(name)
    names = list(running_models())
    if len(names) != 1:
        raise EndpointNotFoundError(
            f"there are {len(names)} endpoints ({', '.join(names)}); name one of them"
            if names
            else "no endpoint is running. Start one with `%serve MODEL:VERSION`."
        )
    return Endpoint(names[0])
