"""The sizes of the network bench.

Two cores stand for three machines with a GPU each. A step computes for 360 ms instead of the 45 ms that ResNet-18 takes
on such a GPU, so the links carry an eighth of a gigabit, which keeps the ratio of computation to traffic. On machines
of their own, hosts would not share processors and memory. The slower the steps, the less this matters.
"""

from farandole.ranks.training.sync.choice.gaps import LIMIT_POINTS

HOSTS = 3
MEGABITS = 125.0
"""The speed of each link in each direction, in megabits per second."""
COMPUTE_SECONDS = 0.36
"""The duration of a step without a network."""
PARAMETER_BYTES = 4 * 11_181_642
STEPS = 300
"""Measured steps of a run, after the first ones. An epoch of CINIC-10 has as many, with 100 images in a step of each
host. Its end, at which the hosts wait for one more average, is a part of what is measured."""
SHORT_STEPS = 100
"""Measured steps of the runs that are not compared with computing alone."""
SLOW_STEPS = 12
"""Measured steps in the modes that average after each step."""
FIRST_STEPS = 5
"""Steps before the measurement."""
FIRST_STEPS_OF_AUTO = 35
"""Steps before the measurement in mode auto, which chooses in the first 30 of them, and in modes with a warm-up."""
STRAGGLER = 4
"""How many times slower the last rank is in the measurement of a straggler."""
EFFICIENCY = 0.95
STRAGGLER_PERCENT = 5.0

ALONE = "None"
"""The value of ``sync`` for hosts that do not communicate. Their speed is that of computing. They are as many as in the
measured mode, because hosts share the two cores."""
MODES = {
    "step": '"step"',
    "fp16": 'fd.sync.compressed("fp16")',
    "local_16": "fd.sync.local(every=16, warmup=0)",
    "int4_4": 'fd.sync.local(every=4, payload="int4", warmup=0)',
    "asynchronous": "fd.sync.asynchronous(every=16)",
    "auto": "fd.sync.auto()",
}
"""The measured modes: the name in the results, and the value of ``sync``."""
EACH_STEP = ('"step"', 'fd.sync.compressed("fp16")')
PREDICTED_MEGABITS = (100.0, 250.0, 1000.0)
"""The speeds of the links at which step times are predicted and measured."""
PREDICTION_PERCENT = 20.0

BATCH = 32
"""Images of a rank in a step of the accuracy bench."""
EPOCHS = 36
"""Epochs of a training whose accuracy is compared with that of mode ``step``: about 1,100 steps. The experiment on
three PCs had 15,000."""
SHORT_EPOCHS = 12
"""Epochs of trainings that show how much more accuracy a mode costs if a training is short: about 370 steps."""
SHORT_MODES = ("int4_4", "int4_4_at_once")
EPOCHS_ALONE = 30
"""Epochs of the training on one host whose accuracy all hosts shall reach."""
SCHEDULES = (20, 25, 30, 38)
"""Lengths of the trainings of several hosts, in epochs, which are tried until one reaches the accuracy of one host."""
RATES = (0.02, 0.03, 0.05, 0.07, 0.1)
SEEDS = 10
"""Trainings of each mode with each learning rate. Two to four are too few to choose the learning rate reliably."""
ACCURACY_MODES = {
    "step": '"step"',
    "fp16_16": "fd.sync.local(every=16)",
    **{f"int4_{every}": f'fd.sync.local(every={every}, payload="int4")' for every in (2, 4, 8, 16)},
    "int4_4_at_once": 'fd.sync.local(every=4, delay=0, payload="int4")',
    "asynchronous": "fd.sync.asynchronous(every=16)",
}
"""The modes whose accuracies are compared."""
GAP_POINTS = LIMIT_POINTS
TIME_TO_ACCURACY = 0.45
"""The longest time in which several hosts reach the accuracy of one host, as a fraction of its time."""
T_95 = 2.262
"""Student's t for a 95 % interval with `SEEDS` - 1 degrees of freedom."""
