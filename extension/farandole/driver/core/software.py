"""The versions of packages and of data sets that the ranks have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from farandole.datasets.versions.mounted import MISSING
from farandole.driver.output import label
from farandole.driver.workers.worker import Progress


@dataclass(frozen=True, kw_only=True)
class Software:
    """What a run records about its ranks.

    - ``packages``: the versions of Python and packages on rank 0
    - ``data_sets``: the digest of each version of a data set, such as ``{"imagenet@2": "sha256:9c3f..."}``; if it is
      not the same on all ranks, the text names the ranks
    """

    packages: dict[str, str] = field(default_factory=dict)
    data_sets: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Sequence[dict[str, dict[str, str]]], progress: Progress) -> Software:
        """Return what the ranks have, from their answers in the order of the ranks. Report data sets that differ."""
        names = dict.fromkeys(name for answer in answers for name in answer["data_sets"])
        data_sets = {name: _on_all([answer["data_sets"].get(name, MISSING) for answer in answers]) for name in names}
        for name, found in data_sets.items():
            if found == MISSING:
                progress(
                    f"Warning: no rank has the data set {name}: its folder has no manifest, so the administrator must "
                    "copy the data set there again"
                )
            elif " on " in found:
                progress(
                    f"Warning: the ranks do not all have the data set {name} ({found}); the administrator must copy it "
                    "to each machine"
                )
        return cls(packages=answers[0]["packages"], data_sets=data_sets)


def _on_all(digests: Sequence[str]) -> str:
    """Return the digest if it is the same on all ranks, and otherwise a text that lists the ranks of each digest."""
    if len(set(digests)) == 1:
        return digests[0]
    ranks = {one: [rank for rank, digest in enumerate(digests) if digest == one] for one in dict.fromkeys(digests)}
    return "; ".join(f"{digest} on {label(those)}" for digest, those in ranks.items())
