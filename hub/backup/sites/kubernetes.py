"""A hub on Kubernetes, whose claims are reached from a pod of its image, with kubectl on the operator's machine."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hub.backup.job import SAVE
from hub.backup.place import CLAIM, BackupError
from hub.backup.sites.command import run, run_agent
from hub.backup.sites.files import read_files, write_files
from hub.backup.sites.site import Source
from hub.doctor.deployment import read_env_file
from spawner_config.labels import HUB_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hub.backup.job import Job
    from hub.backup.manifest import Manifest

STATE = "/srv/farandole"
PARTS, CLAIMS = "/parts", "/claims"
"""Where the pod mounts the claims of users and groups, and the claim with the backups."""
SITE, SETTINGS, KUSTOMIZATION = "hub/kubernetes/site", "settings.env", "kustomization.yaml"
STARTS = ("home-", "group-")
OWNER = "hub.jupyter.org/username"
"""The annotation with the full name of the user, see spawner_config/kubernetes/policies.py."""
READY = "--timeout=600s"
LONGEST = 24 * 3600
"""The seconds after which Kubernetes ends the pod of a backup that was killed."""
BACKUP = "backup"
"""The component of the pod, which may open connections by a policy in hub/kubernetes/base/networks.yaml."""


class KubernetesSite:
    """The hub whose settings.env and kustomization.yaml are in hub/kubernetes/site of a checkout, or in ``folder``."""

    deployment = "kubernetes"
    state = STATE

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Read the settings; raises `BackupError`."""
        self._folder = (folder / SITE if (folder / SITE).is_dir() else folder).resolve()
        self._environ = environ
        self.password_file = self._folder / "backup_password"
        if not (self._folder / KUSTOMIZATION).exists():
            raise BackupError(f"There is no {SITE} here. Set it up as docs/how-to/kubernetes.md describes.")
        self._read()

    def _read(self) -> None:
        path = self._folder / SETTINGS
        self._settings = read_env_file(path) if path.exists() else {}
        named = re.search(r"^namespace: *(\S+)", (self._folder / KUSTOMIZATION).read_text(encoding="utf-8"), re.M)
        self._namespace = named[1] if named else "default"

    @property
    def database(self) -> str:
        """The kind of the database."""
        return "elsewhere" if self._settings.get("FARANDOLE_DATABASE") else "sqlite"

    def setting(self, key: str) -> str:
        """Return a setting of the environment or of settings.env."""
        return self._environ.get(key) or self._settings.get(key) or ""

    def source(self) -> Source:
        """Return the claims of users and groups, and the operator's files."""
        if self.database == "elsewhere":
            print("The database of FARANDOLE_DATABASE is not part of this backup. Dump it as well.", file=sys.stderr)
        claims = self._claims()
        owners = {self._part(name): (claims[name].get("annotations") or {}).get(OWNER, "") for name in claims}
        names = sorted(each.name for each in self._folder.iterdir() if each.name != self.password_file.name)
        return Source(
            folders={self._part(name): (f"{PARTS}/{name}", "") for name in claims},
            owners={part: owner for part, owner in owners.items() if owner},
            settings=read_files(self._folder, names),
        )

    def run(self, job: Job) -> dict[str, Any]:
        """Do a step in a pod with the claims."""
        if job.place.startswith("/"):
            raise BackupError("On Kubernetes, the place of backups is claim:NAME, rest:https://... or s3:https://...")
        claim = job.place.removeprefix(CLAIM) if job.place.startswith(CLAIM) else ""
        with self._pod(job, claim) as pod:
            given = replace(job, place=f"{CLAIMS}/{claim}") if claim else job
            command = ("exec", "--stdin", pod, "--", "python", "-m", "hub.backup.agent")
            return run_agent(*self._kubectl, *command, job=given.to_json())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Raise `BackupError` if the hub or a user's server runs."""
        if any(self._pods("app=farandole,component=hub")):
            raise BackupError(
                "The hub is running, and nothing was changed. Stop it: "
                f"kubectl -n {self._namespace} scale deployment/hub --replicas=0"
            )
        if servers := self._pods("component=singleuser-server"):
            raise BackupError(
                f"{len(servers)} servers of users are running, and nothing was changed. Stop them: "
                f"kubectl -n {self._namespace} delete pods -l component=singleuser-server"
            )
        yield

    def write_settings(self, settings: dict[str, str]) -> bool:
        """Write the operator's files of a backup, but replace none that exists. Return whether settings.env is new."""
        written = write_files(self._folder, settings)
        self._read()
        return SETTINGS in written

    def count_homes(self) -> int:
        """Return the number of homes and group folders."""
        return len(self._claims())

    def count_users(self) -> int:
        """Return 0, because users are in the SQLite database, or in one that is not restored."""
        return 0

    def prepare(self, manifest: Manifest) -> dict[str, tuple[str, str]]:
        """Create the claims that do not exist, and return the folders of all homes and groups."""
        there = {each["metadata"]["name"] for each in self._get("pvc")["items"]}
        folders = {}
        for part in manifest.parts:
            name = f"{self._name}-{part.name.replace('/', '-', 1)}"
            if not part.name.startswith(("home/", "group/")):
                continue
            if name not in there:
                run(*self._kubectl, "create", "--filename=-", typed=json.dumps(self._claim(name, part.owner)))
            folders[part.name] = (f"{PARTS}/{name}", "")
        return folders

    def restore_database(self, dump: str) -> None:  # noqa: ARG002 - only PostgreSQL has one
        """Raise `BackupError`, because backups on Kubernetes have no dump."""
        raise BackupError("The backup has a dump of PostgreSQL. Restore it with psql, see docs/how-to/backups.md.")

    @property
    def _name(self) -> str:
        return self._settings.get("FARANDOLE_NAME") or "farandole"

    @property
    def _kubectl(self) -> tuple[str, ...]:
        return ("kubectl", "--namespace", self._namespace)

    def _get(self, *what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run(*self._kubectl, "get", *what, "--output=json"))
        return found

    def _pods(self, selector: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("pods", f"--selector={selector}")["items"]
        return found

    def _claims(self) -> dict[str, dict[str, Any]]:
        """Return the metadata of the claims of users and groups by their names."""
        starts = tuple(f"{self._name}-{each}" for each in STARTS)
        found = {each["metadata"]["name"]: each["metadata"] for each in self._get("pvc")["items"]}
        return {name: found[name] for name in sorted(found) if name.startswith(starts)}

    def _part(self, claim: str) -> str:
        return claim.removeprefix(f"{self._name}-").replace("-", "/", 1)

    @contextmanager
    def _pod(self, job: Job, claim: str) -> Iterator[str]:
        """Run a pod with the claims of a job, and remove it at the end."""
        name = f"{self._name}-{BACKUP}"
        try:
            run(*self._kubectl, "create", "--filename=-", typed=json.dumps(self._pod_of(name, job, claim)))
        except BackupError as exc:
            if "AlreadyExists" not in str(exc):
                raise
            raise BackupError(
                f"Another backup or restore of this hub is running. If it was killed, remove its pod: "
                f"kubectl -n {self._namespace} delete pod {name}"
            ) from exc
        try:
            run(*self._kubectl, "wait", "--for=condition=Ready", f"pod/{name}", READY)
            yield name
        finally:
            run(*self._kubectl, "delete", "pod", name, "--grace-period=1")

    def _pod_of(self, name: str, job: Job, claim: str) -> dict[str, Any]:
        deployment = self._get("deployment", "hub")["spec"]["template"]["spec"]
        ours = {"hub-state": STATE, "hub-snapshots": f"{STATE}/snapshots"}
        users = {root.removeprefix(f"{PARTS}/"): root for root, _ in job.folders.values()}
        mounts = {**ours, **dict(sorted(users.items())), **({claim: f"{CLAIMS}/{claim}"} if claim else {})}
        names = {each: f"claim-{number}" for number, each in enumerate(mounts)}
        # A claim that only one node can have is mounted where the hub is.
        node = next((each["spec"].get("nodeName") for each in self._pods("app=farandole,component=hub")), None)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "farandole", "component": BACKUP, HUB_LABEL: self._name}},
            "spec": {
                **({"nodeName": node} if node else {}),
                "restartPolicy": "Never",
                "activeDeadlineSeconds": LONGEST,
                "serviceAccountName": "hub",
                "automountServiceAccountToken": False,
                "securityContext": deployment["securityContext"],
                "containers": [
                    {
                        "name": BACKUP,
                        "image": deployment["containers"][0]["image"],
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sleep", "infinity"],
                        "securityContext": deployment["containers"][0]["securityContext"],
                        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
                        "volumeMounts": [
                            {
                                "name": names[each],
                                "mountPath": path,
                                "readOnly": each in users and job.action == SAVE,
                            }
                            for each, path in mounts.items()
                        ]
                        + [{"name": "tmp", "mountPath": "/tmp"}],
                    }
                ],
                "volumes": [
                    *({"name": names[each], "persistentVolumeClaim": {"claimName": each}} for each in mounts),
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        }

    def _claim(self, name: str, owner: str) -> dict[str, Any]:
        """Return a claim like those that the hub makes."""
        storage = self._settings.get("FARANDOLE_HOME_CLASS")
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "labels": {HUB_LABEL: self._name, "component": "singleuser-storage"},
                "annotations": {OWNER: owner} if owner else {},
            },
            "spec": {
                "accessModes": [self._settings.get("FARANDOLE_HOME_ACCESS") or "ReadWriteMany"],
                "resources": {"requests": {"storage": self._settings.get("FARANDOLE_HOME_SIZE") or "10Gi"}},
                **({"storageClassName": storage} if storage else {}),
            },
        }
