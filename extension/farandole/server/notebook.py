"""Farandole's extension for notebook servers.

It adds the panel, activity reports, automatic snapshots, measurements of the home, support for reloaded pages, and
versions of data sets for the mirrors of other hubs.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from farandole.frames import INVALID, PROTOCOL, check_frame, close_reason
from farandole.reading import parse_json
from farandole.server.activity import ActivityKernelManager, report_activity
from farandole.server.data_sets import add_data_sets
from farandole.server.senders import limit_bodies

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

RESTORE_TARGET = "jupyter.widget.control"


class NotebookWebsocketConnection(ZMQChannelsWebsocketConnection):
    """Jupyter Server's websocket connection, extended to answer a page that is reloaded while a cell is running.

    Before JupyterLab restores a widget, it sends two kinds of requests on the shell channel.
    These requests would wait there until the cell has finished, so this class handles them differently:

    - A ``kernel_info_request`` is also sent on the control channel. The reply is forwarded to the page as if it came
      from the shell channel.
    - Comm messages that ask for the state of widgets are sent to a subshell. JupyterLab creates a subshell as well, but
      sends the first requests before that subshell exists.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._subshells = False
        self._subshell: str | None = None
        self._subshell_request = ""
        self._restore_comm = ""
        self._pending: list[list[Any]] = []

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Forward a message from the page to the kernel. An invalid message closes the connection."""
        try:
            check_frame(incoming_msg, self.subprotocol)
        except ValueError as exc:
            self.log.warning("refused a message of a page: %s", exc)
            self.websocket_handler.close(INVALID, close_reason(exc))
            return
        if self.subprotocol == PROTOCOL and self.channels:
            channel, parts = deserialize_msg_from_ws_v1(incoming_msg)
            if channel == "shell" and self._redirect(_kind(parts), parts):
                return
        super().handle_incoming_message(incoming_msg)

    def _redirect(self, kind: str, parts: list[Any]) -> bool:
        """Send a message to another channel or a subshell if necessary.

        Returns True if the message must not be sent to the shell channel as well.
        """
        if kind == "kernel_info_request":
            # Kernels reject a second message with the same signature. Different metadata changes the signature.
            asked = [*parts[:2], b'{"channel": "control"}', *parts[3:]]
            super().handle_incoming_message(serialize_msg_to_ws_v1(asked, "control"))
        elif self._subshells and kind in {"comm_open", "comm_msg", "comm_close"} and self._restores(kind, parts):
            self._send_to_subshell(parts)
            return True
        return False

    def _restores(self, kind: str, parts: list[Any]) -> bool:
        try:
            content = parse_json(bytes(parts[3]), "the content")
        except ValueError:
            # The kernel reports the invalid content itself.
            return False
        comm = content.get("comm_id")
        if kind == "comm_open" and content.get("target_name") == RESTORE_TARGET:
            self._restore_comm = str(comm or "")
        return bool(self._restore_comm) and comm == self._restore_comm

    def _send_to_subshell(self, parts: list[Any]) -> None:
        self._pending.append(parts)
        if self._subshell is not None:
            self._send_pending()
        elif not self._subshell_request:
            request = self.session.msg("create_subshell_request", {})
            self._subshell_request = request["header"]["msg_id"]
            self.session.send(self.channels["control"], request)

    def _send_pending(self) -> None:
        pending, self._pending = self._pending, []
        for parts in pending:
            header = json.dumps({**_load(parts, 0), "subshell_id": self._subshell}).encode()
            self.session.send_raw(self.channels["shell"], [header, *parts[1:]])
            if _kind(parts) == "comm_close":
                self._end_subshell()

    def _end_subshell(self) -> None:
        self.session.send(self.channels["control"], "delete_subshell_request", {"subshell_id": self._subshell})
        self._subshell, self._subshell_request, self._restore_comm = None, "", ""

    def _on_zmq_reply(self, stream: Any, msg_list: Any) -> None:
        if self.subprotocol == PROTOCOL and stream is self.channels.get("control"):
            kind = _kind(msg_list)
            if kind == "kernel_info_reply":
                self._subshells = "kernel subshells" in _load(msg_list, 3).get("supported_features", [])
                stream = self.channels["shell"]
            elif kind == "create_subshell_reply" and _load(msg_list, 1).get("msg_id") == self._subshell_request:
                self._subshell = _load(msg_list, 3).get("subshell_id")
                self._send_pending()
                return
        super()._on_zmq_reply(stream, msg_list)  # type: ignore[no-untyped-call]


def _kind(parts: list[Any]) -> str:
    return str(_load(parts, 0)["msg_type"])


def _load(parts: list[Any], index: int) -> dict[str, Any]:
    """Return a parsed part of a message: 0 is the header, 1 the parent header, 2 the metadata, 3 the content."""
    loaded: dict[str, Any] = json.loads(bytes(parts[index]))
    return loaded


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "farandole.server.notebook"}]


def _link_jupyter_server_extension(serverapp: ServerApp) -> None:
    # Jupyter Server calls this function before it creates its kernel manager. A class in the configuration or a gateway
    # takes priority.
    configured = "kernel_manager_class" in serverapp.config.ServerApp
    if not configured and not GatewayClient.instance(parent=serverapp).gateway_enabled:
        serverapp.kernel_manager_class = ActivityKernelManager


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    # Worker servers import this package as well and must not import the driver, so these imports are in the function.
    from farandole.quotas.watch import watch_home
    from farandole.server.panel.load import add_panel
    from farandole.snapshots.automatic import take_automatically

    settings = serverapp.web_app.settings
    # A connection class in the configuration takes priority.
    if settings["kernel_websocket_connection_class"] is ZMQChannelsWebsocketConnection:
        settings["kernel_websocket_connection_class"] = NotebookWebsocketConnection
    report_activity(serverapp)
    add_panel(serverapp)
    add_data_sets(serverapp)
    hide_token(serverapp)
    keep_https(settings)
    limit_bodies(serverapp)
    take_automatically(serverapp.log)
    watch_home(serverapp.log)


def keep_https(settings: dict[str, Any]) -> None:
    """If the hub uses HTTPS, set ``Secure`` for the XSRF cookie, and enable HSTS for a year.

    JupyterHub's extension sets ``Secure`` only for its login cookie. HSTS makes browsers refuse plain HTTP to this
    server's host.
    """
    if os.environ.get("JUPYTERHUB_HOST", "").startswith("https:"):
        settings["xsrf_cookie_kwargs"] = {**settings.get("xsrf_cookie_kwargs", {}), "secure": True}
        settings["headers"] = {**settings.get("headers", {}), "Strict-Transport-Security": "max-age=31536000"}


def hide_token(serverapp: ServerApp) -> None:
    """Remove the user's token from JupyterLab's page, which needs only the login cookie and the XSRF token.

    JupyterHub adds the token to the page. Another page on the same origin could read the token and send it elsewhere.
    """
    provider: Any = serverapp.identity_provider
    settings = serverapp.web_app.settings
    hook = getattr(provider, "page_config_hook", None)
    if hook is None:
        return

    def without_token(handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = hook(handler, page_config)
        found["token"] = ""
        return found

    # JupyterHub's extension copies the hook into the settings, either before or after this extension is loaded.
    provider.page_config_hook = without_token
    if "page_config_hook" in settings:
        settings["page_config_hook"] = without_token
