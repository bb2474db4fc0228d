"""Measure the time of `fd.report` in blocks of 200 calls; pauses keep the send queue as short as in a training loop."""

import statistics
import time

import farandole as fd

CALLS, BLOCKS = 200, 20


def block():
    """Call `fd.report` repeatedly, and return the microseconds per call."""
    began = time.perf_counter()
    for step in range(CALLS):
        fd.report(step=step, epoch=1, loss=0.5, accuracy=0.9)
    return (time.perf_counter() - began) / CALLS * 1e6


times = []
for _ in range(BLOCKS):
    times.append(block())
    time.sleep(0.2)
fd.result({"microseconds": statistics.median(times)})
