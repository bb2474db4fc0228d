"""Backs up and restores a hub, from the operator's machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hub.backup.job import CHOOSE, COMMIT, LIST, SAVE, STAGE, Job
from hub.backup.manifest import Manifest
from hub.backup.place import PASSWORD_FILE, SECRET, USER, BackupPlace, read_address

if TYPE_CHECKING:
    from hub.backup.sites.site import Site


def place_of(site: Site, address: str) -> BackupPlace:
    """Return the place at an address, with the login and the file of the passphrase from the site's settings."""
    given = site.setting(PASSWORD_FILE)
    return BackupPlace(
        address=read_address(address),
        password_file=site.password_file.parent / given if given else site.password_file,
        user=site.setting(USER),
        secret=site.setting(SECRET),
    )


def back_up(site: Site, place: BackupPlace, *, keep: int = 0) -> Manifest:
    """Make a backup while the hub runs, and return its manifest; raises `BackupError`.

    ``keep`` is how many complete backups of this hub stay at the place, or 0 for all.
    """
    is_new = not place.password_file.exists()
    passphrase = place.passphrase(create=True)
    if is_new:
        print(
            f"{place.password_file} is the passphrase of the backups. Keep a copy of it elsewhere: without it, nobody "
            "can restore them.",
            file=sys.stderr,
        )
    source = site.source()
    job = _job(
        site,
        place,
        SAVE,
        passphrase,
        folders=source.folders,
        owners=source.owners,
        settings=source.settings,
        dump=source.dump,
        schema=source.schema,
        keep=keep,
    )
    return Manifest.from_json(site.run(job)["manifest"], "")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which backup is restored: ``backup``, or the newest; what it may replace; and whether another hub's may be."""

    backup: str = ""
    replace: bool = False
    other_hub: bool = False


def restore(site: Site, place: BackupPlace, choice: Choice) -> Manifest:
    """Restore a backup into a stopped hub, and return its manifest; raises `BackupError`.

    - A hub with users is only replaced if the choice says so, after a backup of its present state.
    - Homes come first, then the database, then the state. What is interrupted can be repeated.
    """
    with site.stopped():
        return _restore(site, place, choice)


def _restore(site: Site, place: BackupPlace, choice: Choice) -> Manifest:
    passphrase = place.passphrase()
    found = _choose(site, place, choice)
    if site.write_settings(found["settings"]):
        # On an empty machine, only these files say what the hub is.
        found = _choose(site, place, choice)
    manifest = Manifest.from_json(found["manifest"], choice.backup)
    folders = site.prepare(manifest)
    if found["replaces"]:
        print("The present state is backed up first.", file=sys.stderr)
        back_up(site, place)
    job = _job(site, place, STAGE, passphrase, folders=folders, backup=manifest.id, other_hub=True, replace=True)
    dump = site.run(job)["dump"]
    if dump:
        site.restore_database(dump)
    site.run(_job(site, place, COMMIT, passphrase))
    return manifest


def _choose(site: Site, place: BackupPlace, choice: Choice) -> dict[str, Any]:
    return site.run(
        _job(
            site,
            place,
            CHOOSE,
            place.passphrase(),
            users=site.count_users(),
            homes=site.count_homes(),
            replace=choice.replace,
            other_hub=choice.other_hub,
            backup=choice.backup,
        )
    )


def list_backups(site: Site, place: BackupPlace) -> tuple[list[Manifest], list[str]]:
    """Return the complete backups at a place, and the names of those that were interrupted."""
    found = site.run(_job(site, place, LIST, place.passphrase()))
    return [Manifest.from_json(each, "") for each in found["complete"]], found["incomplete"]


def _job(site: Site, place: BackupPlace, action: str, passphrase: str, **values: Any) -> Job:
    return Job(
        action=action,
        place=place.address,
        user=place.user,
        secret=place.secret,
        passphrase=passphrase,
        deployment=site.deployment,
        database=site.database,
        state=site.state,
        **values,
    )
