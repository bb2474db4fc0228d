"""Measures `%models publish`: how long it takes, what it sends besides the model, and whether it repeats the digest."""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.models.store import ModelStore
from farandole.registry.publish import publish

from bench.record import Record, median_of
from tests.models import save_small
from tests.registry import BASE, push_serving_image, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL_BYTES = 5_000_000
BASE_BYTES = 100_000_000
"""The size of the serving image that the registry has already. Its content is of no importance, as it is not read."""
LIMIT_SECONDS = 10
LIMIT_BYTES = 2_000_000


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records of publishing new versions to a registry of this machine that has the serving image."""
    seconds, beyond, others = [], [], []
    with tempfile.TemporaryDirectory(prefix="farandole-publishing-") as name:
        store = ModelStore(Path(name) / "models")
        with running_registry(Path(name) / "registry") as registry:
            base = registry.reference(BASE)
            push_serving_image(base, content=secrets.token_bytes(BASE_BYTES))
            for _ in range(repeats):
                info = save_small(store, weights=secrets.token_bytes(MODEL_BYTES))
                target = registry.reference("lab/iris")
                begun = time.perf_counter()
                first = publish(info, target, base)
                seconds.append(time.perf_counter() - begun)
                beyond.append(first.sent + first.base_sent - info.size)
                # The same version gets the same digest in another repository, too, where nothing is there yet.
                again = [publish(info, one, base) for one in (target, registry.reference(f"lab/again-{info.version}"))]
                others.append(sum(each.reference.digest != first.reference.digest for each in again))
    note = f"a model of {MODEL_BYTES / 1e6:g} MB"
    yield median_of("publish_seconds", seconds, "s", limit=f"<= {LIMIT_SECONDS}", note=note)
    yield median_of("publish_bytes_beyond_model", beyond, "bytes", limit=f"<= {LIMIT_BYTES}", note=note)
    yield Record(
        name="publish_other_digests",
        value=sum(others),
        unit="digests",
        runs=tuple(others),
        limit="<= 0",
        note="each version three times",
    )
