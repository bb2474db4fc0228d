"""Marks the replies of cells without output, which the worker forwards without waiting for the idle status.

Replies and output use different sockets. After other cells, the worker therefore holds the reply back until the idle
status, which follows the output, has arrived. This module patches objects of ipykernel in this process.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Callable
from typing import Any

from farandole.protocol import NO_OUTPUT

IDLE_DELAY_SECONDS = 0.01
"""How long after an early reply the kernel publishes that it is idle. The status would otherwise take processor time
while other ranks on the same machine still reply.
"""


class Publications:
    """Knows whether the worker has received all output of a cell by the time it receives the cell's reply.

    It has if nothing was published since the last idle status for which the worker has held a reply back.
    """

    def __init__(self) -> None:
        self._latest = self._settled = object()
        self._at_start: dict[str, object] = {}
        self._marked: set[str] = set()
        # The output of a forked child process arrives through a pipe, possibly after the cell has ended.
        self._child_has_output = mmap.mmap(-1, 1)
        self._is_child = False
        os.register_at_fork(after_in_child=self._note_fork)

    def note(self) -> None:
        """Record that output was written or published. May be called on any thread, and in a forked child."""
        self._latest = object()
        if self._is_child:
            self._child_has_output[0] = 1

    def begin(self, request: str) -> None:
        """Record that the request with this message id has arrived."""
        self._at_start[request] = self._settled

    def mark(self, request: str) -> bool:
        """Return whether the reply of a request is marked, which is decided once."""
        if self._at_start.pop(request, None) is not self._latest or self._child_has_output[0]:
            return False
        self._marked.add(request)
        return True

    def end(self, request: str, *, in_order: bool) -> bool:
        """Return whether the reply of a request was marked.

        The worker holds back an unmarked reply until the idle status arrives, so it receives all earlier output before
        the reply. This also holds for later replies if they arrive ``in_order``, that is, after this one.
        """
        self._at_start.pop(request, None)
        if request in self._marked:
            self._marked.remove(request)
            return True
        if in_order:
            self._settled = self._latest
        return False

    def _note_fork(self) -> None:
        self._is_child = True


def mark_early_replies(kernel: Any) -> Publications:
    """Patch a kernel so that it marks early replies. Return the object whose `note` must be called for written text."""
    publications = Publications()
    thread = kernel.iopub_thread
    thread.send_multipart = noted(thread.send_multipart, publications)
    kernel._publish_status = late_idle(kernel, publications)
    kernel.finish_metadata = marked(kernel.finish_metadata, publications)
    return publications


def noted(send: Callable[..., None], publications: Publications) -> Callable[..., None]:
    """Return a function that notes each message that ``send`` publishes, except statuses."""

    def send_and_note(parts: list[Any], *args: Any, **options: Any) -> None:
        if parts[0].endswith(b".status"):
            send(parts, *args, **options)
            return
        # Another thread may settle earlier output before this message is sent.
        publications.note()
        send(parts, *args, **options)
        publications.note()

    return send_and_note


def late_idle(kernel: Any, publications: Publications) -> Callable[..., None]:
    """Return a function that publishes the statuses of the kernel, but never busy, and idle later after an early reply.

    The worker's server knows that the kernel is busy, because it forwards the requests. It also knows from an early
    reply that the kernel is idle. Only a server that has lost the connection to the driver needs the status then.
    """
    publish = kernel._publish_status

    def publish_status(status: str, channel: str, parent: Any = None) -> None:
        parent = parent or kernel.get_parent(channel)
        header = parent.get("header", {})
        request = header["msg_id"] if header.get("msg_type") == "execute_request" else ""
        if status == "busy":
            if request:
                publications.begin(request)
        # Replies from a subshell and from the main shell are sent through different sockets.
        elif request and publications.end(request, in_order=not header.get("subshell_id")):
            asyncio.get_running_loop().call_later(IDLE_DELAY_SECONDS, publish, status, channel, parent)
        else:
            publish(status, channel, parent)

    return publish_status


def marked(finish: Callable[..., dict[str, Any]], publications: Publications) -> Callable[..., dict[str, Any]]:
    """Return a function that completes the metadata of a reply, and marks the reply if all output has been received."""

    def finish_metadata(parent: dict[str, Any], metadata: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        metadata = finish(parent, metadata, content)
        if publications.mark(parent["header"]["msg_id"]):
            metadata[NO_OUTPUT] = True
        return metadata

    return finish_metadata
