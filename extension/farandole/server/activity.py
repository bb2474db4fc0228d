"""Tracks when a server was last used and reports this to the hub, which stops servers that are idle for too long."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

SINGLE_USER = "jupyterhub-singleuser"
SAVED = "farandole_last_activity"


class ActivityKernelManager(AsyncMappingKernelManager):
    """Jupyter Server's kernel manager that also tracks which requests its kernels execute.

    Jupyter Server's own ``execution_state`` is not sufficient, because it becomes idle after any request. This includes
    requests that a subshell answers while the main shell is still computing, such as the messages of a widget.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        # Maps (observer, kernel, subshell) to (message id of the request, kernel process). A shell executes one request
        # at a time, so a new request replaces a previous one whose idle status was missed. Each observer has its own
        # entries, because observers may receive the same message at different times.
        self._executing: dict[tuple[object, str, str], tuple[str, Any]] = {}
        self.before_work: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        """True if any kernel is executing a request. Requests to processes that have died do not count."""
        return any(process is None or process.poll() is None for _, process in self._executing.values())

    def note_status(self, kernel_id: str, parent: dict[str, Any], state: str, *, observer: object = None) -> None:
        """Record that a kernel has started (busy) or finished (idle) the request whose header is ``parent``.

        ``observer`` is the connection that received the status, or None for the server's own activity stream.
        """
        if parent.get("msg_type") != "execute_request":
            return
        key = (observer, kernel_id, parent.get("subshell_id") or "")
        if state == "busy" and kernel_id in self:
            if not self.busy:
                self.before_work()
            process = getattr(self.get_kernel(kernel_id).provisioner, "process", None)
            self._executing[key] = (parent["msg_id"], process)
        elif state == "idle" and key in self._executing and self._executing[key][0] == parent["msg_id"]:
            del self._executing[key]
            self.last_kernel_activity = utcnow()

    def transfer_to_server(self, observer: object) -> None:
        """Assign the unfinished requests of a disconnecting observer to the server's own activity stream."""
        for key in [key for key in self._executing if key[0] is observer]:
            self._executing[(None, *key[1:])] = self._executing.pop(key)

    def start_watching_activity(self, kernel_id: str) -> None:
        """Subscribe to a kernel's output to track the kernel's activity."""
        super().start_watching_activity(kernel_id)  # type: ignore[no-untyped-call]
        kernel: Any = self.get_kernel(kernel_id)
        record_activity = kernel._activity_stream._recv_callback

        def record_and_note(message: list[bytes]) -> None:
            record_activity(message)
            header, parent, _, content = kernel.session.feed_identities(message)[1][1:5]
            if json.loads(header)["msg_type"] == "status":
                self.note_status(kernel_id, json.loads(parent), json.loads(content)["execution_state"])

        kernel._activity_stream.on_recv(record_and_note)

    def stop_watching_activity(self, kernel_id: str) -> None:
        """Stop tracking a kernel that is shutting down."""
        super().stop_watching_activity(kernel_id)  # type: ignore[no-untyped-call]
        for key in [key for key in self._executing if key[1] == kernel_id]:
            del self._executing[key]


def last_use(manager: ActivityKernelManager, settings: dict[str, Any]) -> datetime:
    """Return when a server was last used.

    This is the current time if a kernel is executing a request. Otherwise, it is the latest of the server's start, the
    last activity of a kernel and the last saved file. ``settings`` are the settings of the server's web
    application. HTTP requests do not count as use, because open pages and drivers send them every few seconds.
    """
    if manager.busy:
        return utcnow()
    others = [value for key, value in settings.items() if key.endswith("_last_activity") and key != "api_last_activity"]
    times: list[datetime] = [manager.last_kernel_activity, *others, *settings["last_activity_times"].values()]
    started: datetime = settings["started"]
    return max(started, *times)


def idle_seconds(manager: ActivityKernelManager, settings: dict[str, Any]) -> float | None:
    """Return the seconds since a server was last used, or None while a kernel is executing a request."""
    return None if manager.busy else (utcnow() - last_use(manager, settings)).total_seconds()


def report_activity(serverapp: ServerApp) -> None:
    """Configure the server to report `last_use` to the hub as its activity. Without a hub, do nothing."""
    manager, settings = serverapp.kernel_manager, serverapp.web_app.settings
    if "JUPYTERHUB_ACTIVITY_URL" not in os.environ or not isinstance(manager, ActivityKernelManager):
        return
    serverapp.web_app.last_activity = lambda: last_use(manager, settings)  # type: ignore[method-assign]
    serverapp.contents_manager.register_post_save_hook(lambda **_: settings.update({SAVED: utcnow()}))
    single_user = serverapp.extension_manager.extension_points[SINGLE_USER].app
    manager.before_work = FirstReport(
        since=lambda: utcnow() - last_use(manager, settings),
        notify=single_user.notify_activity,
        interval=timedelta(seconds=single_user.hub_activity_interval),
    )


@dataclass(kw_only=True)
class FirstReport:
    """Reports to the hub immediately when an idle server starts to execute a request.

    Without this report, the hub could stop a server that has just started training, because the last regular report
    says that the server is idle.
    """

    since: Callable[[], timedelta]
    notify: Callable[[], Awaitable[None]]
    interval: timedelta
    task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Start sending a report if the last use is more than ``interval`` ago and no such report is being sent."""
        if self.since() > self.interval and (self.task is None or self.task.done()):
            self.task = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        try:
            await self.notify()
        except TimeoutError:
            # The hub is offline, which `notify_activity` has logged. Regular reports continue.
            return
