"""The certificate of the service `tls`, as the machine sees it before the container does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hub.doctor.certificate import CERTIFICATE, KEY, USER, CertificateError, check_pair, expires, readable_by
from hub.doctor.finding import Finding, fault, ok, warning

if TYPE_CHECKING:
    from pathlib import Path

    from hub.doctor.deployment import Deployment

CHECK = "certificate"
SOON = timedelta(days=21)


def check_tls(deployment: Deployment) -> Finding:
    """Judge the folder that FARANDOLE_TLS_FOLDER names; nothing is asked of it without the profile `tls`."""
    if "tls" not in deployment.profiles:
        return ok(CHECK, "COMPOSE_PROFILES has no tls: none is needed")
    return judge_folder(deployment.path("FARANDOLE_TLS_FOLDER"))


def judge_folder(folder: Path, user: int = USER) -> Finding:
    """Judge the folder for the container, whose user has the id ``user`` and sees nothing outside of the folder."""
    paths = (folder, folder / CERTIFICATE, folder / KEY)
    mend = f"sudo chown -R {user} {folder} && sudo chmod -R u+rX {folder}"
    try:
        outside = [path for path in paths[1:] if not path.resolve().is_relative_to(folder.resolve())]
        unreadable = [path for path in paths if not readable_by(path, user)]
    except FileNotFoundError as exc:
        return fault(CHECK, f"There is no {exc.filename}.", f"Put {CERTIFICATE} and {KEY} into {folder}, then: {mend}")
    except PermissionError as exc:
        return warning(CHECK, f"You may not look into {exc.filename}.", "Run this as root.")
    if outside:
        names = ", ".join(map(str, outside))
        return fault(CHECK, f"{names} leads out of its folder, where the container sees nothing.", "Copy the file.")
    if unreadable:
        return fault(CHECK, f"User id {user} of the container may not read {', '.join(map(str, unreadable))}.", mend)
    return _judge_pair(folder)


def _judge_pair(folder: Path) -> Finding:
    try:
        check_pair(folder)
        end = expires(folder)
    except CertificateError as exc:
        if isinstance(exc.__cause__, PermissionError):
            return warning(CHECK, f"You may not read {folder}: whether the key fits is not known.", "Run this as root.")
        return fault(CHECK, str(exc), "Then start it anew: docker compose up -d")
    if end - datetime.now(UTC) < SOON:
        return warning(CHECK, f"{folder / CERTIFICATE} ends on {end:%Y-%m-%d}.", "Put a new one there in time.")
    return ok(CHECK, f"{folder / CERTIFICATE} is good until {end:%Y-%m-%d}")
