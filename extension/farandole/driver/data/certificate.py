"""Makes the certificate of a Dask cluster, by which the scheduler, the Dask workers and the client know each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from distributed import Security

from farandole.files.dask_settings import MemorySecurity

VALID = timedelta(days=365)
SKEW = timedelta(days=1)
"""How far the clock of another machine may be behind. `Security.temporary` of Dask allows no difference."""
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Dask of a cluster")])
ROLES = ("scheduler", "worker", "client")


def new_security() -> Security:
    """Return the settings of encrypted connections whose two sides must have a certificate that exists only here."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    own = certificate.public_bytes(Encoding.PEM).decode()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    roles = {f"tls_{role}_cert": own for role in ROLES} | {f"tls_{role}_key": private for role in ROLES}
    return MemorySecurity(tls_ca_file=own, **roles)


def credentials(security: Security) -> dict[str, Any]:
    """Return the arguments with which a rank makes the same settings."""
    names = ("tls_ca_file", *(f"tls_{role}_{kind}" for role in ROLES for kind in ("cert", "key")))
    return {name: getattr(security, name) for name in names}
