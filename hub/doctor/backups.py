"""Check when the hub was last backed up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hub.doctor.finding import Finding, ok, warning
from spawner_config.operators.backup_record import BackupRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.doctor.deployment import Deployment
    from hub.doctor.engine import Engine

CHECK = "backup"
DAYS = 7
"""The age of the last backup from which on the check warns."""
DAY = 24 * 3600


def check_backups(deployment: Deployment, engine: Engine) -> Iterator[Finding]:
    """Yield the finding about the last backup of a hub that has been started here."""
    folder = deployment.get("FARANDOLE_STATE_FOLDER")
    volume = engine.get(f"/volumes/{deployment.name}-state") or {}
    state = deployment.path("FARANDOLE_STATE_FOLDER") if folder else Path(volume.get("Mountpoint") or "")
    if not folder and not volume:
        return
    try:
        found = BackupRecord.read(state)
    except PermissionError:
        yield warning(CHECK, f"{state}, where the time of the last backup is, cannot be read.", "Run this as root.")
        return
    yield judge_backup(found, datetime.now(UTC))


def judge_backup(found: BackupRecord | None, now: datetime) -> Finding:
    """Return a finding about the last backup, or about a hub that has none."""
    remedy = "make backup TO=PLACE, see docs/how-to/backups.md"
    if found is None:
        return warning(CHECK, "There is no backup of this hub.", remedy)
    days = int(found.age(now) / DAY)
    if days >= DAYS:
        return warning(CHECK, f"The last backup is {days} days old: {found.text}", remedy)
    return ok(CHECK, f"the last one is of {found.text}")
