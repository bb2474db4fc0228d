"""Train with steps of about 5 ms, in alternating blocks with and without a report in each step."""

import statistics
import time

import farandole as fd
import torch

STEP_SECONDS, STEPS, PAIRS = 0.005, 100, 20

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps, batch, *, report):
    """Train for ``steps`` steps and return the seconds per step."""
    images, labels = torch.randn(batch, 256), torch.randint(10, (batch,))
    began = time.perf_counter()
    for step in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()
        if report:
            fd.report(step=step, loss=value)
    return (time.perf_counter() - began) / steps


batch = 64
while train(40, batch, report=False) < STEP_SECONDS:
    batch = batch * 5 // 4

ratios = []
for pair in range(PAIRS):
    seconds = {}
    # Alternate the order, so that drift in the machine's speed cancels out.
    for report in (True, False) if pair % 2 else (False, True):
        seconds[report] = train(STEPS, batch, report=report)
    ratios.append(seconds[True] / seconds[False])
fd.result({"overhead_percent": (statistics.median(ratios) - 1) * 100, "step_ms": seconds[False] * 1e3})
