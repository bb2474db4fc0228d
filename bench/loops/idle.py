"""Measure, in a thread that outlives this cell, this rank's CPU time and sent data while no cell runs."""

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import horovod.torch as hvd
import torch

HEADER_BYTES = 66
"""Bytes of the Ethernet, IP and TCP headers of a segment."""
INFO = struct.Struct("=120xQ8xI")
"""Fields of Linux's ``tcp_info``: acknowledged bytes and sent segments, which include acknowledgements."""


def sent_bytes():
    """Return the number of bytes that the open TCP connections of this process have sent, including headers."""
    total = 0
    for entry in [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_socket()]:
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
            acknowledged, segments = INFO.unpack(info)
            total += acknowledged + HEADER_BYTES * segments
    return total


def measure():
    """Wait until the rank rests, and store its CPU time in percent of a core and its data in kilobytes per second."""
    time.sleep(SETTLE_SECONDS)
    cpu, sent, began = time.process_time(), sent_bytes(), time.monotonic()
    time.sleep(WINDOW_SECONDS)
    seconds = time.monotonic() - began
    idle[:] = [100 * (time.process_time() - cpu) / seconds, (sent_bytes() - sent) / seconds / 1000]


idle = []
hvd.allreduce(torch.ones(1))
measuring = threading.Thread(target=measure)
measuring.start()
