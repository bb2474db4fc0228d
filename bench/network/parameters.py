"""The sizes of the network bench.

Two cores stand for three machines with a GPU each. A step computes for 45 ms instead of 11 ms, so the links carry a
quarter of a gigabit, which keeps the ratio of computation to traffic.
"""

HOSTS = 3
MEGABITS = 250.0
"""The speed of each link in each direction, in megabits per second."""
COMPUTE_SECONDS = 0.045
"""The duration of a step without a network."""
PARAMETER_BYTES = 4 * 11_181_642
STEPS = 200
"""Measured steps of a run, after the warm-up."""
SLOW_STEPS = 40
"""Measured steps in the modes that average after each step."""
WARM_UP = 40
"""Steps before the measurement. Mode auto chooses in the first 30 of them."""
STRAGGLER = 4
"""How many times slower the last rank is in the measurement of a straggler."""
EFFICIENCY = 0.95
STRAGGLER_PERCENT = 5.0

MODES = {
    "step": '"step"',
    "fp16": 'fd.sync.compressed("fp16")',
    "local_16": "fd.sync.local(every=16)",
    "local_32": "fd.sync.local(every=32)",
    "int4_4": 'fd.sync.local(every=4, delay=3, payload="int4")',
    "asynchronous": "fd.sync.asynchronous(every=16)",
    "auto": "fd.sync.auto()",
}
"""The measured modes: the name in the results, and the value of ``sync``."""
EACH_STEP = ("step", "fp16")
