"""The image `debian:bookworm-slim`, built with debootstrap so that the tests need no registry."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

from tests.docker.engines.debian import RELEASE, SetUpError, install, mirror, run

NAME = f"debian:{RELEASE}-slim"
SHIPPED = Path("/usr/share/ca-certificates")
WORK = Path("/var/tmp")
# Leave out manuals and translations now and in later installations, as the official image does.
SLIM = """path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def ensure() -> None:
    """Build the image unless it exists. Raises `SetUpError` if that fails."""
    if subprocess.run(["docker", "image", "inspect", NAME], capture_output=True, check=False).returncode == 0:
        return
    install({"debootstrap": "debootstrap"})
    folder = Path(tempfile.mkdtemp(prefix="farandole-base-", dir=WORK))
    try:
        certificates = _fill(folder)
        _import(folder)
    finally:
        shutil.rmtree(folder)
    print(f"built {NAME} with {certificates} additional certificates from this machine", flush=True)


def _fill(root: Path) -> int:
    run("debootstrap", "--variant=minbase", RELEASE, str(root), mirror())
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(SLIM)
    for pattern in ("var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "var/log/*.log"):
        _remove(root, pattern)
    for pattern in ("usr/share/locale/*", "usr/share/man/*", "usr/share/info/*", "usr/share/doc/*/[!c]*"):
        _remove(root, pattern)
    _remove(root, "usr/share/doc/*/changelog*")
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").write_text("localhost\n")
    return _carry_certificates(root / "usr/local/share/ca-certificates")


def _remove(root: Path, pattern: str) -> None:
    for path in root.glob(pattern):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _carry_certificates(folder: Path) -> int:
    """Copy the certificate authorities that only this machine trusts, and return their number.

    Image builds need these certificates behind a proxy that intercepts TLS.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shipped = {ssl.PEM_cert_to_DER_cert(path.read_text()) for path in SHIPPED.glob("**/*.crt")}
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    own = [each for each in dict.fromkeys(trusted) if each not in shipped]
    for number, certificate in enumerate(own):
        (folder / f"host-{number}.crt").write_text(ssl.DER_cert_to_PEM_cert(certificate))
    return len(own)


def _import(root: Path) -> None:
    changes = ["--change", f"ENV PATH={PATH}", "--change", 'CMD ["bash"]']
    with subprocess.Popen(["tar", "--numeric-owner", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        done = subprocess.run(
            ["docker", "import", *changes, "-", NAME], stdin=tar.stdout, capture_output=True, text=True, check=False
        )
    if done.returncode or tar.returncode:
        raise SetUpError(f"docker import {NAME} failed: {done.stderr.strip()}")
