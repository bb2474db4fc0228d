"""Whether a server is in use, and what the hub hears of it: the hub stops servers that have been idle for long."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

SINGLE_USER = "jupyterhub-singleuser"
SAVED = "farandole_last_activity"


class ActivityKernelManager(AsyncMappingKernelManager):
    """Jupyter Server's kernel manager, which also knows what its kernels execute.

    Jupyter Server's own ``execution_state`` will not do: it is idle after any request, also after one that a subshell
    answers while the kernel computes, and the messages of a dashboard are such requests.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        # The request and the kernel's process, by observer, kernel and shell. A shell executes one request at a time,
        # so the next one makes up for an end that was lost. Each observer has its own: one may lag behind another.
        self._executing: dict[tuple[object, str, str], tuple[str, Any]] = {}
        self.before_work: Callable[[], None] = _nothing

    @property
    def busy(self) -> bool:
        """Whether any kernel executes; what a dead process has begun does not count."""
        return any(process is None or process.poll() is None for _, process in self._executing.values())

    def note_status(self, kernel_id: str, parent: dict[str, Any], state: str, *, observer: object = None) -> None:
        """Note that a kernel is busy or idle with the request whose header is ``parent``.

        ``observer`` is who has seen it; None is this server's own watch.
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

    def hand_over(self, observer: object) -> None:
        """Leave to this server's own watch what an observer that goes has seen begin."""
        for key in [key for key in self._executing if key[0] is observer]:
            self._executing[(None, *key[1:])] = self._executing.pop(key)

    def start_watching_activity(self, kernel_id: str) -> None:
        """Watch a kernel's output for driver_statuses of activity."""
        super().start_watching_activity(kernel_id)  # type: ignore[no-untyped-call]
        kernel: Any = self.get_kernel(kernel_id)
        record = kernel._activity_stream._recv_callback

        def record_and_note(message: list[bytes]) -> None:
            record(message)
            parts = kernel.session.feed_identities(message)[1][1:]
            if json.loads(parts[0])["msg_type"] == "status":
                self.note_status(kernel_id, json.loads(parts[1]), json.loads(parts[3])["execution_state"])

        kernel._activity_stream.on_recv(record_and_note)

    def stop_watching_activity(self, kernel_id: str) -> None:
        """Stop watching a kernel that ends."""
        super().stop_watching_activity(kernel_id)  # type: ignore[no-untyped-call]
        for key in [key for key in self._executing if key[1] == kernel_id]:
            del self._executing[key]


def last_use(manager: ActivityKernelManager, settings: dict[str, Any]) -> datetime:
    """Return when a server was last of use: now while a kernel executes, else when one did, or a file was saved.

    ``settings`` are those of the server's web application. Its requests do not count: an open page asks for something
    every few seconds, and so does a driver for driver_statuses of life.
    """
    if manager.busy:
        return utcnow()
    others = [value for key, value in settings.items() if key.endswith("_last_activity") and key != "api_last_activity"]
    times: list[datetime] = [manager.last_kernel_activity, *others, *settings["last_activity_times"].values()]
    started: datetime = settings["started"]
    return max(started, *times)


def idle_seconds(manager: ActivityKernelManager, settings: dict[str, Any]) -> float | None:
    """Return how long a server has not been of use; None while a kernel executes."""
    return None if manager.busy else (utcnow() - last_use(manager, settings)).total_seconds()


def report_activity(serverapp: ServerApp) -> None:
    """Have a server of a hub report `last_use`; elsewhere, or with another kernel manager, nothing changes."""
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


class FirstReport:
    """Called before a server begins to work: after a pause the hub hears of it at once, not with the next report.

    Otherwise the hub could stop a server for having been idle that has just begun to train.
    """

    def __init__(
        self, *, since: Callable[[], timedelta], notify: Callable[[], Awaitable[None]], interval: timedelta
    ) -> None:
        self._since = since
        self._notify = notify
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Begin to report, unless the server was in use since the last report."""
        if self._since() > self._interval and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        try:
            await self._notify()
        except TimeoutError:
            # The hub is away; it has been told so in the log, and the next report comes in time.
            return


def _nothing() -> None:
    """Do nothing: nobody wants to hear."""
