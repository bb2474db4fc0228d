"""The programs of a Kubernetes node, from Debian's packages or built from Debian's source.

Debian 12 has the source of Kubernetes 1.20.2, but builds only kubectl from it. The command
`python -m tests.kubernetes.node.programs` builds the other programs once, in about ten minutes of CPU time.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.docker.engines.debian import RELEASE, install, kept, own_apt, run, unpack

PACKAGES = ("etcd-server", "containernetworking-plugins", "containerd", "runc", "kubernetes-client")
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
GO = "1.19"
VERSION = "v1.20.2"
SOURCE = "src/k8s.io/kubernetes"
"""The source's folder, which is inside a GOPATH because such old source code cannot be built elsewhere."""
PAUSE = "build/pause/linux/pause.c"
BUILDERS = {
    "dpkg-source": "dpkg-dev",
    "gcc": "gcc",
    "jq": "jq",
    "make": "make",
    "perl": "perl",
    "rsync": "rsync",
}


def servers() -> Path:
    """Return the folder with the built programs and `pause`, after building them if necessary.

    Raises `SetUpError` if the build fails.
    """
    return kept(f"{RELEASE}-kubernetes-servers", _timed_build)


def packaged() -> list[Path]:
    """Return the folders with the programs from Debian's packages.

    Raises `SetUpError` if the packages are unavailable.
    """
    root = unpack(RELEASE, *PACKAGES)
    return [root / "usr/bin", root / "usr/sbin"]


def network_plugins() -> Path:
    """Return the folder with the network plugins. Raises `SetUpError` if their package is unavailable."""
    return unpack(RELEASE, *PACKAGES) / "usr/lib/cni"


def _timed_build(part: Path) -> None:
    print(f"building Kubernetes {VERSION} from Debian's source, which takes about ten minutes", flush=True)
    begun = time.monotonic()
    _build(part)
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    print(f"built Kubernetes {VERSION} in {minutes}:{seconds:02} min", flush=True)


def _build(part: Path) -> None:
    install(BUILDERS)
    source = part / SOURCE
    source.parent.mkdir(parents=True)
    _fetch(part, source)
    version = part / "version"
    version.write_text(_version_file())
    run(
        *("make", f"WHAT={' '.join(f'cmd/{name}' for name in SERVERS)}", "GOLDFLAGS=-s -w"),
        folder=source,
        **_environment(part),
        KUBE_GIT_VERSION_FILE=str(version),
        FORCE_HOST_GO="y",
    )
    _gather(source, part / "files")


def _fetch(part: Path, source: Path) -> None:
    """Download the source and the compiler. apt verifies both with Debian's signed checksums."""
    apt = own_apt(part / "apt", RELEASE)
    run(*apt, "download", f"golang-{GO}-go", f"golang-{GO}-src", folder=part / "apt")
    for package in (part / "apt").glob("*.deb"):
        run("dpkg", "-x", str(package), str(part / "go"))
    run(*apt, "source", "--download-only", "--only-source", "kubernetes", folder=part / "apt")
    [description] = (part / "apt").glob("*.dsc")
    run("dpkg-source", "--no-check", "-x", str(description), str(source), folder=part / "apt")


def _environment(part: Path) -> dict[str, str]:
    """Return environment variables for a build that keeps its files in ``part`` and does without cgo."""
    return {
        "GOROOT": str(part / f"go/usr/lib/go-{GO}"),
        "GOPATH": str(part),
        "GOCACHE": str(part / "gocache"),
        "CGO_ENABLED": "0",
        "HOME": str(part),
        "PATH": f"{part}/go/usr/lib/go-{GO}/bin:{os.environ['PATH']}",
    }


def _version_file() -> str:
    """Return the version information that the build would otherwise read from git."""
    _, minor, _ = VERSION.split(".")
    return (
        "KUBE_GIT_COMMIT='debian'\nKUBE_GIT_TREE_STATE='clean'\n"
        f"KUBE_GIT_VERSION='{VERSION}'\nKUBE_GIT_MAJOR='1'\nKUBE_GIT_MINOR='{minor}'\n"
    )


def _gather(source: Path, folder: Path) -> None:
    folder.mkdir()
    for name in SERVERS:
        shutil.copy(source / "_output/local/go/bin" / name, folder)
    run("gcc", "-Os", "-static", "-o", str(folder / "pause"), str(source / PAUSE))
    run("strip", str(folder / "pause"))


if __name__ == "__main__":
    print(servers())
