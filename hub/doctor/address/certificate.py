"""Check that the certificate and the key of the service `tls` are readable, match and are currently valid."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

CERTIFICATE, KEY = "tls.crt", "tls.key"
USER = 1000
"""The user id of the TLS server in its container."""
ROUNDS = 4
"""The number of rounds in which both sides of a handshake send messages; TLS 1.3 needs two."""
EXPIRED = 10
"""OpenSSL's error code X509_V_ERR_CERT_HAS_EXPIRED."""


class CertificateError(ValueError):
    """Raised when a certificate is not usable; the message says what is wrong and what to do."""


def check_pair(folder: Path) -> None:
    """Check that a TLS server can use the certificate and key in ``folder``; raises `CertificateError`."""
    _serving(folder)


def readable_by(path: Path, user: int = USER) -> bool:
    """Return whether ``user``, whose group has the same id, may read a file, or read and enter a folder."""
    found = path.stat()
    shift = 6 if found.st_uid == user else 3 if found.st_gid == user else 0
    needed = 0o5 if path.is_dir() else 0o4
    return (found.st_mode >> shift) & needed == needed


def expires(folder: Path) -> datetime:
    """Return when the certificate expires; raises `CertificateError` if clients already refuse the certificate."""
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(_read(folder)["notAfter"])), UTC)


def local_text(time: datetime) -> str:
    """Return a time in this machine's zone, such as 2026-12-02 15:00 UTC+07:00.

    `farandole.times`, which writes times in the same form, is not installed where `make doctor` runs.
    """
    local = time.astimezone()
    return f"{local.astimezone(timezone(local.utcoffset() or timedelta(0))):%Y-%m-%d %H:%M %Z}"


def uncovered(folder: Path, domain: str, *, users: bool) -> list[str]:
    """Return the names that the certificate does not cover: the hub's and, with ``users``, the wildcard below it.

    Raises `CertificateError` if clients refuse the certificate, for example because it has expired.
    """
    pairs: Any = _read(folder).get("subjectAltName", ())
    covered = {str(name).lower() for kind, name in pairs if kind == "DNS"}
    lacks = [] if {domain, f"*.{domain.partition('.')[2]}"} & covered else [domain]
    return [*lacks, *([f"*.{domain}"] if users and f"*.{domain}" not in covered else [])]


def _read(folder: Path) -> dict[str, Any]:
    """Return the fields of the certificate; raises `CertificateError` if clients refuse the certificate.

    Python parses only certificates that a TLS client has received, so this connects a client to a server in memory.
    """
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = _serving(folder).wrap_bio(to_server, to_client, server_side=True)
    try:
        client_context.load_verify_locations(folder / CERTIFICATE)
        client = client_context.wrap_bio(to_client, to_server)
        _shake_hands(client, server)
    except ssl.SSLError as exc:
        expired = isinstance(exc, ssl.SSLCertVerificationError) and exc.verify_code == EXPIRED
        what = "has expired" if expired else f"is refused by clients ({exc})"
        raise CertificateError(f"{folder / CERTIFICATE} {what}. Put a new certificate there.") from exc
    return dict(client.getpeercert() or {})


def _shake_hands(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    for side in (client, server) * ROUNDS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def _serving(folder: Path) -> ssl.SSLContext:
    """Return a server's TLS context with the folder's certificate and key; raises `CertificateError`."""
    certificate, key = folder / CERTIFICATE, folder / KEY
    for path in (certificate, key):
        _check_readable(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except ssl.SSLError as exc:
        reason = (exc.reason or "no PEM lines").lower().replace("_", " ")
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(
                f"{key} is not the key of {certificate}. Copy a certificate and a key that match."
            ) from exc
        raise CertificateError(
            f"{certificate} and {key} cannot be loaded as a certificate and its key ({reason}). Both must be PEM "
            "files, with lines such as -----BEGIN CERTIFICATE----- and -----BEGIN PRIVATE KEY-----."
        ) from exc
    return context


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except FileNotFoundError as exc:
        raise CertificateError(
            f"There is no {path}. Put the certificate into {CERTIFICATE} and its key into {KEY}, as copies and not as "
            "links, in the folder that FARANDOLE_TLS_FOLDER names."
        ) from exc
    except OSError as exc:
        raise CertificateError(
            f"{path} cannot be read ({exc.strerror}). User id {USER} must be able to read it. Run "
            f"`chown -R {USER} FOLDER; chmod -R u+rX FOLDER` with the folder that FARANDOLE_TLS_FOLDER names."
        ) from exc


def _no_passphrase() -> NoReturn:
    raise CertificateError(
        f"{KEY} has a passphrase, which the server cannot enter. Remove it: openssl pkey -in KEY -out {KEY}"
    )
