"""Tests for the certificate of the service `tls`, and for its container's checks and messages before it starts."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from farandole.times import time_text

from hub.doctor.address.certificate import CertificateError, check_pair, expires, local_text, readable_by, uncovered
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAMES = ("hub.localhost", "*.hub.localhost")
DAY = dt.timedelta(days=1)


def make_pair(folder: Path, *, days: int = 30, passphrase: bytes | None = None, names: Sequence[str] = NAMES) -> Path:
    """Write a self-signed certificate for ``names`` and its key. The certificate expires in ``days`` days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub.example.org")])
    end = dt.datetime.now(dt.UTC) + days * DAY
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 90 * DAY)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    sealed = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)
    )
    return folder


def serve(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the container's entry point with a command in place of the server."""
    code = "import pathlib, sys; from hub.tls import main; main(['echo', 'serving'], pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_the_end_of_a_valid_certificate_is_printed(tmp_path: Path) -> None:
    make_pair(tmp_path, days=30)
    check_pair(tmp_path)
    left = expires(tmp_path) - dt.datetime.now(dt.UTC)
    assert 29 * DAY < left < 31 * DAY
    done = serve(tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"The certificate is good until {local_text(expires(tmp_path))}.", "serving"]


def test_times_have_the_form_of_those_in_notebooks(set_zone: Callable[[str], None]) -> None:
    for zone in ("UTC", "Asia/Bangkok", "America/New_York"):
        set_zone(zone)
        for time in (dt.datetime(2026, 11, 25, 14, 5, tzinfo=dt.UTC), dt.datetime(2026, 7, 1, 23, 59, tzinfo=dt.UTC)):
            assert local_text(time) == time_text(time.timestamp())


@pytest.mark.parametrize(
    ("names", "lacks", "lacks_alone"),
    [
        (["hub.example.org", "*.hub.example.org"], [], []),
        (["*.example.org", "*.hub.example.org"], [], []),
        (["hub.example.org"], ["*.hub.example.org"], []),
        (["*.example.org"], ["*.hub.example.org"], []),
        (["*.hub.example.org"], ["hub.example.org"], ["hub.example.org"]),
        (["example.org"], ["hub.example.org", "*.hub.example.org"], ["hub.example.org"]),
    ],
)
def test_the_hosts_of_users_need_a_wildcard(
    tmp_path: Path, names: list[str], lacks: list[str], lacks_alone: list[str]
) -> None:
    make_pair(tmp_path, names=names)
    assert uncovered(tmp_path, "hub.example.org", users=True) == lacks
    assert uncovered(tmp_path, "hub.example.org", users=False) == lacks_alone


def test_a_certificate_without_the_hosts_of_users_is_served_with_a_warning(tmp_path: Path) -> None:
    done = serve(make_pair(tmp_path, names=["hub.localhost"]))
    assert "serving" in done.stdout
    assert "is not for *.hub.localhost." in done.stderr
    assert not serve(make_pair(tmp_path)).stderr


def test_an_expired_certificate_is_served_with_a_warning(tmp_path: Path) -> None:
    make_pair(tmp_path, days=-1)
    check_pair(tmp_path)
    with pytest.raises(CertificateError, match="has expired"):
        expires(tmp_path)
    done = serve(tmp_path)
    assert "serving" in done.stdout
    assert "has expired" in done.stderr


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    make_pair(tmp_path)
    (make_pair(tmp_path / "other") / "tls.key").replace(tmp_path / "tls.key")
    with pytest.raises(CertificateError, match="is not the key of"):
        check_pair(tmp_path)


def test_a_key_with_a_passphrase_does_not_prompt(tmp_path: Path) -> None:
    make_pair(tmp_path, passphrase=b"secret")
    with pytest.raises(CertificateError, match="has a passphrase"):
        check_pair(tmp_path)


def test_an_invalid_certificate_is_named(tmp_path: Path) -> None:
    make_pair(tmp_path)
    (tmp_path / "tls.crt").write_text("hello")
    with pytest.raises(CertificateError, match="cannot be loaded as a certificate and its key"):
        check_pair(tmp_path)


def test_a_missing_file_ends_the_container_with_one_clear_line(tmp_path: Path) -> None:
    make_pair(tmp_path)
    (tmp_path / "tls.key").unlink()
    done = serve(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("No HTTPS: There is no")
    assert "FARANDOLE_TLS_FOLDER" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("mode", "readable"), [(0o600, False), (0o640, False), (0o644, True)])
def test_whether_another_user_can_read_a_file(tmp_path: Path, mode: int, readable: bool) -> None:
    key = make_pair(tmp_path) / "tls.key"
    key.chmod(mode)
    assert readable_by(key, user=key.stat().st_uid)
    stranger = max(key.stat().st_uid, key.stat().st_gid) + 1
    assert readable_by(key, user=stranger) == readable
