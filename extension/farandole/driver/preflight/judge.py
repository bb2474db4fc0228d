"""Finds faults of ranks and machines from their figures, and returns a message for each. All functions are pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from farandole.driver.output import label
from farandole.driver.preflight.figures import DriverFigures, RankFigures, Room
from farandole.sizes import share_text

LEAST_MEMORY = 0.10
LEAST_DISK = 0.05
MOST_SKEW = 0.5
"""The maximum difference between two clocks, in seconds, in addition to the uncertainty of the measurement."""
MOST_LOAD = 1.5
"""The highest acceptable load average per CPU of the host. The ranks themselves are idle during a check."""
HOT_CELSIUS = 90
FOREIGN_SHARE = 0.10
ONE_IMAGE = "Start all workers from one image: `%cluster stop`, then `%cluster start`."


def machine_faults(ranks: Sequence[RankFigures]) -> list[str]:
    """Return the faults of ranks and machines. `network.link_faults` returns the faults of the network."""
    each = [fault for rank in _one_of_each_worker(ranks) for fault in _shortages(rank)]
    return [*_version_faults(ranks), *_gpu_kind_faults(ranks), *each, *_clock_faults(ranks), *_gpu_faults(ranks)]


def driver_faults(driver: DriverFigures, ranks: Sequence[RankFigures]) -> list[str]:
    """Return the faults that arise because the driver's versions differ from those of all ranks.

    If only some ranks differ from the driver, they also differ from the other ranks, which is a fault of the ranks.
    """
    faults = []
    if not driver.outside and (other := _other_python(driver, ranks)):
        faults.append(
            f"{other}. Functions and classes cannot be pushed or pulled; use an image with the notebook's Python for "
            "the workers, or move only data."
        )
    ours, theirs = driver.versions["farandole"], _versions("farandole", ranks)
    if ours not in theirs:
        remedy = "Start both from images of one release."
        if driver.outside:
            most = max(theirs, key=lambda version: len(theirs[version]))
            remedy = f"Install the wheel of release {most} on this machine, with `pip install FILE`."
        faults.append(f"farandole: the notebook has {ours}, {_whose(theirs)}. {remedy}")
    return faults


def driver_notes(driver: DriverFigures, ranks: Sequence[RankFigures]) -> list[str]:
    """Return how a driver on a laptop differs from the ranks without harm."""
    other = _other_python(driver, ranks) if driver.outside else ""
    return [f"{other}. Cells travel as text, so this is no fault. Push and pull only data."] if other else []


def _other_python(driver: DriverFigures, ranks: Sequence[RankFigures]) -> str:
    """Return who has which Python if all ranks have another one than the driver, or an empty string."""
    ours, theirs = driver.versions["python"], _versions("python", ranks)
    return "" if _minor(ours) in map(_minor, theirs) else f"python: the notebook has {ours}, {_whose(theirs)}"


def _versions(package: str, ranks: Sequence[RankFigures]) -> dict[str, list[int]]:
    return _groups({rank.rank: rank.versions[package] for rank in ranks})


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _version_faults(ranks: Sequence[RankFigures]) -> list[str]:
    names = dict.fromkeys(name for rank in ranks for name in rank.versions)
    differing = (_differing(name, {rank.rank: rank.versions.get(name, "none") for rank in ranks}) for name in names)
    return [f"{fault}. {ONE_IMAGE}" for fault in differing if fault]


def _gpu_kind_faults(ranks: Sequence[RankFigures]) -> list[str]:
    fault = _differing("GPUs", {rank.rank: _counted([gpu.name for gpu in rank.gpus]) for rank in ranks})
    return [f"{fault}. The slowest GPU slows all ranks down; start all workers with one profile."] if fault else []


def _differing(what: str, values: Mapping[int, str]) -> str:
    """Return which ranks have which value, rarest value first, or an empty string if all values are the same."""
    found = _groups(values)
    return f"{what}: {_whose(found)}" if len(found) > 1 else ""


def _groups(values: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the ranks that have each value."""
    found: dict[str, list[int]] = defaultdict(list)
    for rank, value in values.items():
        found[value].append(rank)
    return found


def _whose(found: Mapping[str, list[int]]) -> str:
    # If two values are equally frequent, the value that first appears on a later rank is treated as the outlier.
    groups = sorted(found.items(), key=lambda item: (len(item[1]), -item[1][0]))
    return ", ".join(f"{label(who)} {'has' if len(who) == 1 else 'have'} {which}" for which, who in groups)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"


def _one_of_each_worker(ranks: Sequence[RankFigures]) -> list[RankFigures]:
    firsts: dict[str, RankFigures] = {}
    for rank in ranks:
        firsts.setdefault(rank.worker, rank)
    return list(firsts.values())


def _shortages(rank: RankFigures) -> list[str]:
    where = f"worker {rank.worker} (host {rank.host})"
    faults = []
    if rank.memory.share < LEAST_MEMORY:
        faults.append(
            f"{where} has {size(rank.memory)} of memory free. Stop other processes there, or choose a larger profile."
        )
    for name, room in rank.disks.items():
        if room.share < LEAST_DISK:
            faults.append(f"{where} has {size(room)} free for {name}. Delete files, old runs for example.")
    if rank.load > MOST_LOAD * rank.cpus:
        faults.append(
            f"{where} has a load of {rank.load:.1f} on {rank.cpus} CPUs. Other processes slow down its ranks, and "
            "therefore all other ranks; stop them, or use another host."
        )
    return faults


def _clock_faults(ranks: Sequence[RankFigures]) -> list[str]:
    """Compare the clocks. If the workers' clocks agree, but not with the driver's, the driver's clock is wrong."""
    workers = _one_of_each_worker(ranks)
    common = statistics.median_low([0.0, *(rank.skew for rank in workers)]) if len(workers) > 1 else 0.0
    remedy = "Set it by NTP; until then, times in logs and checkpoints are wrong."
    is_ours = abs(common) > MOST_SKEW + max(rank.skew_error for rank in workers)
    ours = [f"the notebook's clock is {_ahead(-common)} the workers'. {remedy}"] if is_ours else []
    others, middle = ("the other workers'", common) if is_ours else ("the notebook's", 0.0)
    theirs = [
        f"the clock of worker {rank.worker} (host {rank.host}) is {_ahead(rank.skew - middle)} {others} "
        f"(± {rank.skew_error:.3f} s). {remedy}"
        for rank in workers
        if abs(rank.skew - middle) > MOST_SKEW + rank.skew_error
    ]
    return [*ours, *theirs]


def _ahead(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


def _gpu_faults(ranks: Sequence[RankFigures]) -> list[str]:
    """Check each set of GPUs once, because several ranks can share a set."""
    sharing: dict[tuple[str, ...], list[RankFigures]] = defaultdict(list)
    for rank in ranks:
        sharing[tuple(sorted(gpu.uuid for gpu in rank.gpus))].append(rank)
    unseen = [f"{rank.name}: {rank.gpu_error}. Check the host's GPU driver." for rank in ranks if rank.gpu_error]
    seen = [fault for uuids, them in sharing.items() if uuids for fault in [*_sick(them[0]), *_foreign(them)]]
    return [*unseen, *seen]


def _sick(rank: RankFigures) -> list[str]:
    faults = []
    for gpu in rank.gpus:
        what = f"GPU {gpu.name} {gpu.uuid} of worker {rank.worker} (host {rank.host})"
        if gpu.ecc_errors:
            faults.append(
                f"{what} has had {gpu.ecc_errors} uncorrected memory errors. Results may be wrong; reset it, and "
                "have it replaced if the errors return."
            )
        if gpu.slowed_by:
            faults.append(f"{what} is slowed down by {' and '.join(gpu.slowed_by)}. Check its cooling and power.")
        elif gpu.celsius is not None and gpu.celsius >= HOT_CELSIUS:
            faults.append(f"{what} has {gpu.celsius} °C and will soon be slowed down. Check its cooling.")
    return faults


def _foreign(sharing: Sequence[RankFigures]) -> list[str]:
    first = sharing[0]
    used = sum(gpu.memory.total - gpu.memory.free for gpu in first.gpus) - sum(rank.gpu_own for rank in sharing)
    total = sum(gpu.memory.total for gpu in first.gpus)
    if used <= FOREIGN_SHARE * total:
        return []
    amount = share_text(used, total)
    where = f"worker {first.worker} (host {first.host})"
    return [f"other processes use {amount} of the GPU memory of {where}. `nvidia-smi` there lists them; stop them."]


def size(room: Room) -> str:
    """Return the free and total size as text."""
    return share_text(room.free, room.total)
